//! What comes back of a kept state.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use super::*;
use crate::agent::cases::{local, node_route, snapshot, web};
use crate::model::views::TrafficPolicy;

fn origin(folder: &Path) -> Origin {
    Origin { file: folder.join("run/state.json"), boot_id: "boot-1".to_owned(), node: "n1".parse().expect("a name") }
}

fn state() -> Snapshot {
    snapshot()
        .node(node_route("n2", &["10.90.0.12", "fd90::12"], &["10.244.1.0/24"]))
        .local([local("eth0", "10.90.0.11/24")])
        .service(web(TrafficPolicy::Local))
        .endpoints("n2", 1, 2)
        .endpoints_of("shop", "n2", 1, 0)
        .build()
}

#[test]
fn the_state_comes_back_as_it_was_kept_for_its_owner_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let origin = origin(folder.path());
    assert_eq!(load(&origin), None, "nothing is kept yet");
    Keeper::new(origin.clone()).write(state()).expect("it is written");
    let kept = load(&origin).expect("it was kept");
    assert_eq!(kept, Snapshot { local: Vec::new(), endpoints: kept.endpoints.clone(), ..state() });
    assert_eq!(kept.endpoints.len(), 1, "of the Service that is known");
    let mode = std::fs::metadata(&origin.file).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_is_not_of_this_boot_and_node_or_is_damaged_is_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let origin = origin(folder.path());
    Keeper::new(origin.clone()).write(state()).expect("it is written");
    assert_eq!(load(&Origin { boot_id: "boot-2".to_owned(), ..origin.clone() }), None);
    assert_eq!(load(&Origin { node: "n9".parse().expect("a name"), ..origin.clone() }), None);
    let text = std::fs::read_to_string(&origin.file).expect("a file");
    for (name, damaged) in [
        ("cut", text[..text.len() / 2].to_owned()),
        ("empty", String::new()),
        ("of a later version", text.replacen("\"version\":1", "\"version\":2", 1)),
        ("something else", "[]".to_owned()),
    ] {
        std::fs::write(&origin.file, damaged).expect("it is written");
        assert_eq!(load(&origin), None, "{name}");
    }
}

#[test]
fn what_changed_is_added_until_it_is_as_long_as_the_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let origin = origin(folder.path());
    let mut keeper = Keeper::new(origin.clone());
    let mut state = state();
    let (mut appended, mut anew) = (0, 0);
    for round in 0..200 {
        match round % 5 {
            0 => drop(state.node_routes.remove("n3")),
            1 => {
                let address = format!("10.90.0.{}", 20 + round);
                state.node_routes.insert("n3".to_owned(), Arc::new(node_route("n3", &[&address], &["10.244.3.0/24"])));
            }
            2 => _ = state.labels.insert("round".to_owned(), round.to_string()),
            3 => drop(state.services.remove("default/web")),
            _ => drop(state.services.insert("default/web".to_owned(), Arc::new(web(TrafficPolicy::Local)))),
        }
        let before = std::fs::metadata(&origin.file).map(|file| file.ino()).ok();
        keeper.write(state.clone()).expect("it is written");
        let is_same = std::fs::metadata(&origin.file).map(|file| file.ino()).ok() == before;
        if is_same {
            appended += 1
        } else {
            anew += 1
        }
        assert_eq!(load(&origin), Some(Useful::default().of(state.clone())), "round {round}");
    }
    assert!(appended > 3 * anew && anew > 3, "appended {appended} times, written anew {anew} times");
}

#[test]
fn a_file_that_was_taken_away_is_written_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let origin = origin(folder.path());
    let mut keeper = Keeper::new(origin.clone());
    keeper.write(state()).expect("it is written");
    remove(&origin.file).expect("it is there");
    keeper.write(state()).expect("it is written");
    assert!(load(&origin).is_some());
}

#[test]
fn a_damaged_end_leaves_the_state_before_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let origin = origin(folder.path());
    let mut keeper = Keeper::new(origin.clone());
    keeper.write(state()).expect("it is written");
    let before = load(&origin);
    keeper.write(Snapshot { labels: [("rack".to_owned(), "r1".to_owned())].into(), ..state() }).expect("it is written");
    assert_ne!(load(&origin), before);
    let text = std::fs::read(&origin.file).expect("a file");
    std::fs::write(&origin.file, &text[..text.len() - 3]).expect("it is written");
    assert_eq!(load(&origin), before);
}
