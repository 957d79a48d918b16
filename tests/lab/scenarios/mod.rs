//! The stories, one a file.

mod bench;
