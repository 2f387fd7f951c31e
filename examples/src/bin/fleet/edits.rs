//! Tells when the shape file was saved. Nothing polls: the kernel tells.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

/// Watches the folder of a file rather than the file: editors save by renaming another file over it.
#[derive(Debug)]
pub(crate) struct Edits {
    saved: Arc<Notify>,
    _watcher: RecommendedWatcher,
}

impl Edits {
    /// Begins to watch. # Errors: what the system says.
    pub(crate) fn of(file: &Path) -> notify::Result<Self> {
        let saved = Arc::new(Notify::new());
        // Between the first reading and this moment it may have been saved already.
        saved.notify_one();
        let name: OsString = file.file_name().unwrap_or_default().to_owned();
        let tell = saved.clone();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // After an error something may have been missed.
            if event.is_ok_and(|event| !is_saving(&event, &name)) {
                return;
            }
            tell.notify_one();
        })?;
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        watcher.watch(folder.unwrap_or(Path::new(".")), RecursiveMode::NonRecursive)?;
        Ok(Self {
            saved,
            _watcher: watcher,
        })
    }

    /// Resolves when the file may have been saved since the last time; savings in a row are one. Cancel safe.
    pub(crate) async fn saved(&self) {
        self.saved.notified().await;
    }
}

/// Whether the file is as somebody wanted it now: closed after writing, or put in place by a renaming. What
/// comes before is half a file, and what comes of our own reading is no news.
fn is_saving(event: &notify::Event, name: &OsStr) -> bool {
    if event.need_rescan() {
        return true;
    }
    let saving = matches!(
        event.kind,
        EventKind::Access(AccessKind::Close(AccessMode::Write)) | EventKind::Modify(ModifyKind::Name(_))
    );
    saving && event.paths.iter().any(|path| path.file_name() == Some(name))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    /// Whoever waits for this long has failed.
    const LIMIT: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn saving_in_place_and_by_renaming_is_told_and_reading_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("shape.toml");
        fs::write(&file, "a").unwrap();
        let edits = Edits::of(&file).unwrap();
        let saved = || async { tokio::time::timeout(LIMIT, edits.saved()).await.unwrap() };
        saved().await;
        fs::write(&file, "b").unwrap();
        saved().await;
        // A reading, and another file: were they told, the renaming below would be the second to be told.
        fs::read(&file).unwrap();
        let new = directory.path().join("shape.toml.new");
        fs::write(&new, "c").unwrap();
        fs::rename(&new, &file).unwrap();
        saved().await;
        assert_eq!(fs::read(&file).unwrap(), b"c");
    }

    #[test]
    fn only_what_completes_the_file_itself_is_a_saving() {
        let name = OsStr::new("shape.toml");
        let event = |kind, path: &str| notify::Event::new(kind).add_path(path.into());
        let closed = EventKind::Access(AccessKind::Close(AccessMode::Write));
        assert!(is_saving(&event(closed, "/a/shape.toml"), name));
        assert!(!is_saving(&event(closed, "/a/other.toml"), name));
        for kind in [
            EventKind::Access(AccessKind::Open(AccessMode::Any)),
            EventKind::Access(AccessKind::Close(AccessMode::Read)),
            EventKind::Modify(ModifyKind::Any),
        ] {
            assert!(!is_saving(&event(kind, "/a/shape.toml"), name));
        }
    }
}
