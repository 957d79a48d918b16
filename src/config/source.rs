//! Reading the files that people name: the one place of this room that touches a disk.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::{Fault, Faults};

/// Largest file that is read, in bytes: a machine takes about 300, so this is room for 25,000.
pub const LARGEST: u64 = 8 * 1024 * 1024;

/// The text of a file.
///
/// # Errors
/// One fault that says why there is none.
pub fn read(file: &Path) -> Result<String, Fault> {
    let unreadable = |error: std::io::Error| Fault::of_file(file, unreadable(&error));
    // Asked before it is opened: opening a pipe that nobody writes to would wait for ever.
    let metadata = fs::metadata(file).map_err(unreadable)?;
    if metadata.is_dir() {
        return Err(Fault::of_file(file, "is a directory: it takes a file"));
    }
    if !metadata.is_file() {
        return Err(Fault::of_file(file, "is not a file: it takes a regular file, or - for the standard input"));
    }
    read_from(file, File::open(file).map_err(unreadable)?)
}

/// The text of an open file or of the standard input; `file` is the name that faults get.
///
/// # Errors
/// One fault that says why there is none.
pub fn read_from(file: &Path, from: impl Read) -> Result<String, Fault> {
    let mut bytes = Vec::new();
    from.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| Fault::of_file(file, unreadable(&error)))?;
    if bytes.len() as u64 > LARGEST {
        let message = format!("is larger than {} MiB: split it into several files", LARGEST / (1024 * 1024));
        return Err(Fault::of_file(file, message));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Fault::of_file(file, format!("is not text at line {line}: save it as UTF-8"))
    })
}

/// The files that a list of files and directories stands for: of a directory every `*.yaml` and
/// `*.yml` that is not hidden, sorted by name.
///
/// # Errors
/// A fault for each directory that cannot be read or has no such file. Files are not looked at.
pub fn expand(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Faults> {
    let mut faults = Faults::NONE;
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        if path.is_dir() {
            files.extend(faults.take(files_of(path).map_err(Faults::from)).into_iter().flatten());
        } else {
            files.push(path.clone());
        }
    }
    faults.or(files)
}

fn files_of(directory: &Path) -> Result<Vec<PathBuf>, Fault> {
    let unreadable = |error: std::io::Error| Fault::of_file(directory, unreadable(&error));
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let is_yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        // A ConfigMap mount keeps its versions in `..data` and the like.
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if is_yaml && !is_hidden {
            files.push(path);
        }
    }
    files.sort();
    match files.is_empty() {
        true => Err(Fault::of_file(directory, "has no file that ends in .yaml or .yml: it takes at least one")),
        false => Ok(files),
    }
}

fn unreadable(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "does not exist: check the path".to_owned(),
        ErrorKind::PermissionDenied => "may not be read by this user: check its owner and mode".to_owned(),
        _ => format!("cannot be read ({error}): check the file and its disk"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_have_no_text_is_one_clear_fault() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("latin.yaml"), b"a: 1\nb: \xe9\n").expect("a file");
        fs::write(path("large.yaml"), vec![b'#'; LARGEST as usize + 1]).expect("a file");
        fs::create_dir(path("empty")).expect("a folder");
        for (name, want) in [
            ("none.yaml", "does not exist: check the path"),
            ("latin.yaml", "is not text at line 2: save it as UTF-8"),
            ("large.yaml", "is larger than 8 MiB: split it into several files"),
            ("empty", "is a directory: it takes a file"),
        ] {
            let fault = read(&path(name)).expect_err("a fault");
            assert_eq!(fault.to_string(), format!("{}: {want}", path(name).display()));
        }
        assert!(read(Path::new("/dev/null")).expect_err("a fault").message.starts_with("is not a file"));
    }

    #[test]
    fn a_directory_stands_for_its_yaml_files_in_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["b.yml", "a.yaml", ".hidden.yaml", "notes.txt"] {
            fs::write(path(name), "").expect("a file");
        }
        fs::create_dir(path("empty")).expect("a folder");
        let files = expand(&[folder.path().to_owned(), path("notes.txt")]).expect("files");
        assert_eq!(files, [path("a.yaml"), path("b.yml"), path("notes.txt")]);
        let faults = expand(&[path("empty")]).expect_err("a fault");
        assert!(faults.to_string().ends_with("empty: has no file that ends in .yaml or .yml: it takes at least one"));
    }
}
