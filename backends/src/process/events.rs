//! News of directories: who follows a file sleeps until something is written.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

/// Watches directories with one watcher for all: the kernel grants a user only some 128 of them.
///
/// News is a hint to look again. It may come without a change, and one piece of news may stand for many.
pub(super) struct FileEvents {
    routes: Arc<Routes>,
    /// Apart from the routes: the watcher answers only once its thread is done with earlier news, and that
    /// takes the routes.
    watcher: Mutex<RecommendedWatcher>,
    next: AtomicU64,
}

#[derive(Default)]
struct Routes(Mutex<BTreeMap<PathBuf, BTreeMap<u64, Arc<Notify>>>>);

impl FileEvents {
    pub(super) fn new() -> io::Result<Self> {
        let routes = Arc::new(Routes::default());
        let handler = {
            let routes = routes.clone();
            move |news: notify::Result<notify::Event>| routes.deliver(news)
        };
        Ok(Self {
            routes,
            watcher: Mutex::new(notify::recommended_watcher(handler).map_err(io::Error::other)?),
            next: AtomicU64::new(0),
        })
    }

    /// Wakes `wake` whenever something changes in this directory, until the watch is dropped. What changes
    /// after this has returned is never missed.
    pub(super) fn watch(self: &Arc<Self>, directory: &Path, wake: Arc<Notify>) -> io::Result<Watch> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut watcher = lock(&self.watcher);
        let mut routes = self.routes.lock();
        routes
            .entry(directory.to_owned())
            .or_default()
            .insert(number, wake);
        drop(routes);
        let watch = Watch {
            events: self.clone(),
            directory: directory.to_owned(),
            number,
        };
        // Also where it is watched already: the directory may have been made anew since.
        let watched = watcher.watch(directory, RecursiveMode::NonRecursive);
        drop(watcher);
        watched.map(|()| watch).map_err(io::Error::other)
    }
}

impl std::fmt::Debug for FileEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileEvents").finish_non_exhaustive()
    }
}

impl Routes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, BTreeMap<u64, Arc<Notify>>>> {
        lock(&self.0)
    }

    fn deliver(&self, news: notify::Result<notify::Event>) {
        let routes = self.lock();
        match news {
            Ok(news) if news.need_rescan() => routes.values().for_each(wake),
            // Opening and reading, our own included, changes nothing.
            Ok(news) if matches!(news.kind, EventKind::Access(_)) => {}
            Ok(news) => {
                for path in &news.paths {
                    let about = [Some(path.as_path()), path.parent()];
                    about
                        .iter()
                        .flatten()
                        .filter_map(|path| routes.get(*path))
                        .for_each(wake);
                }
            }
            // News was lost.
            Err(_) => routes.values().for_each(wake),
        }
    }
}

fn wake(waiting: &BTreeMap<u64, Arc<Notify>>) {
    // A permit stays where nobody waits just now.
    waiting.values().for_each(|wake| wake.notify_one());
}

/// Dropping it ends the watch.
#[derive(Debug)]
pub(super) struct Watch {
    events: Arc<FileEvents>,
    directory: PathBuf,
    number: u64,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watcher = lock(&self.events.watcher);
        let mut routes = self.events.routes.lock();
        let Some(waiting) = routes.get_mut(&self.directory) else {
            return;
        };
        waiting.remove(&self.number);
        if waiting.is_empty() {
            routes.remove(&self.directory);
            drop(routes);
            // The directory may be gone, and its watch with it.
            let _ = watcher.unwatch(&self.directory);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change under these locks is one insertion or removal.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
