use std::fs;
use std::path::Path;

use clap::CommandFactory;

use super::kind::Kind;
use super::*;

/// Writes files, validates those named in `given`, and gives what is printed, folder left out.
fn run(files: &[(&str, &str)], given: &[&str]) -> (Verdict, String) {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("a file");
    }
    let paths: Vec<_> = given.iter().map(|name| folder.path().join(name)).collect();
    let (verdict, printed) = validate(&paths);
    (verdict, printed.replace(&format!("{}/", folder.path().display()), ""))
}

const POOL: &str =
    "apiVersion: cairn.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: public}\nspec: {addresses: [10.60.0.0/24]}\n";
const INVENTORY: &str =
    "apiVersion: inventory.cairn.dev/v1\nkind: Inventory\nmachines:\n- {id: a, location: r1}\n- {id: b}\n";

#[test]
fn a_leader_migration_is_checked_and_entries_without_effect_are_told() {
    let with = |version: &str, rest: &str| {
        format!("apiVersion: controllermanager.config.k8s.io/{version}\nkind: LeaderMigrationConfiguration\n{rest}")
    };
    for (name, text, want) in [
        (
            "right",
            with("v1", "leaderName: m\ncontrollerLeaders: [{name: route, component: '*'}]\n"),
            (Verdict::Right, "m.yaml: ok (leader migration under Lease m)\n"),
        ),
        (
            "an older version",
            with("v1beta1", "leaderName: m\nresourceLock: leases\n"),
            (Verdict::Right, "m.yaml: ok (leader migration under Lease m)\n"),
        ),
        (
            "an entry without effect",
            with("v1", "leaderName: m\ncontrollerLeaders: [{name: garbage-collector-controller, component: '*'}]\n"),
            (
                Verdict::Right,
                "m.yaml: ok (leader migration under Lease m)\nm.yaml:4:28: controllerLeaders[0].name: \
                 \"garbage-collector-controller\" is no controller of Cairn: the entry has no effect here\n",
            ),
        ),
        (
            "wrong",
            with("v1", "leaderName: m\nresourceLock: leases\n"),
            (Verdict::Faulty, "m.yaml:4:1: resourceLock: is not a field"),
        ),
        (
            "a version that never was",
            with("v2", "leaderName: m\n"),
            (Verdict::Faulty, "m.yaml:1:13: apiVersion: \"controllermanager.config.k8s.io/v2\" is not that of"),
        ),
    ] {
        let (verdict, printed) = run(&[("m.yaml", &text)], &["m.yaml"]);
        assert!(verdict == want.0 && printed.starts_with(want.1), "{name}: {printed}");
    }
}

#[test]
fn the_example_has_no_fault() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/flat-lan");
    let (verdict, printed) = validate(&[folder]);
    assert_eq!(verdict, Verdict::Right, "{printed}");
    for line in
        ["inventory.yaml: ok (3 machines)", "pool.yaml: ok (AddressPool public)", "peer.yaml: ok (BgpPeer router)"]
    {
        assert!(printed.lines().any(|printed| printed.ends_with(line)), "{line} is not in\n{printed}");
    }
}

#[test]
fn what_is_said_twice_is_told_and_no_fault() {
    let text = "apiVersion: cairn.dev/v1alpha1\nkind: Advertisement\nmetadata: {name: a}\nspec: {services: {}, bgp: {peers: [r, r]}}\n";
    let (verdict, printed) = run(&[("a.yaml", text)], &["a.yaml"]);
    let want = "a.yaml: ok (Advertisement a)\na.yaml:4:39: Advertisement a: spec.bgp.peers[1]: says what spec.bgp.peers[0] \
                says already: leave one of the two\n";
    assert_eq!((verdict, printed.as_str()), (Verdict::Right, want));
}

#[test]
fn lists_are_looked_into() {
    let peer = "metadata: {name: r, labls: {a: b}}\n  spec: {localAsn: 1, peerAsn: 2, address: 127.0.0.1, prot: 179}\n";
    let of_peers = format!("apiVersion: cairn.dev/v1alpha1\nkind: BgpPeerList\nitem: []\nitems:\n- {peer}");
    let of_all = format!(
        "apiVersion: v1\nkind: List\nitem: []\nitems:\n- apiVersion: cairn.dev/v1alpha1\n  kind: BgpPeer\n  {peer}"
    );
    for text in [of_peers, of_all] {
        let (verdict, printed) = run(&[("l.yaml", &text)], &["l.yaml"]);
        assert_eq!(verdict, Verdict::Faulty);
        for want in [
            "l.yaml:3:1: item: is not a field: did you mean items?",
            "metadata.labls: is not a field: did you mean labels?",
            "BgpPeer r: spec.address: 127.0.0.1 is a loopback address",
            "spec.prot: is not a field: did you mean port?",
        ] {
            assert!(printed.contains(want), "{want} is not in\n{printed}");
        }
    }
    let right = "apiVersion: cairn.dev/v1alpha1\nkind: AddressPoolList\nmetadata: {resourceVersion: '1'}\nitems:\n- metadata: {name: a}\n  spec: {addresses: [10.0.0.0/24]}\n";
    let (verdict, printed) = run(&[("l.yaml", right)], &["l.yaml"]);
    assert_eq!((verdict, printed.as_str()), (Verdict::Right, "l.yaml: ok (List of AddressPool a)\n"));
}

#[test]
fn an_advertisement_is_checked() {
    let text = "apiVersion: cairn.dev/v1alpha1\nkind: Advertisement\nmetadata: {name: a}\nspec:\n  services: {}\n  \
                bgp:\n    communities: [no-export, '64512']\n    medd: 5\n";
    let (verdict, printed) = run(&[("a.yaml", text)], &["a.yaml"]);
    assert_eq!(verdict, Verdict::Faulty);
    for want in [
        "a.yaml:7:30: Advertisement a: spec.bgp.communities[1]: \"64512\" is not a community",
        "a.yaml:8:5: spec.bgp.medd",
    ] {
        assert!(printed.contains(want), "{want} is not in\n{printed}");
    }
    let right = text.replace(", '64512'", "").replace("medd", "med");
    assert_eq!(run(&[("a.yaml", &right)], &["a.yaml"]), (Verdict::Right, "a.yaml: ok (Advertisement a)\n".to_owned()));
}

#[test]
fn what_only_shows_side_by_side_is_told() {
    let peer = |name: &str, more: &str| {
        format!(
            "---\napiVersion: cairn.dev/v1alpha1\nkind: BgpPeer\nmetadata: {{name: {name}}}\nspec:\n  localAsn: 64513\n  peerAsn: 64512\n  address: 10.60.0.1\n{more}"
        )
    };
    let inventory = "apiVersion: inventory.cairn.dev/v1\nkind: Inventory\nmachines:\n\
         - {id: a, addresses: [{type: InternalIP, address: 10.60.0.7}, {type: ExternalIP, address: 10.60.0.8}]}\n";
    let peers = [
        peer("one", "  nodeSelector: {rack: r1}\n"),
        peer("other-rack", "  nodeSelector: {rack: r2}\n"),
        peer("other-port", "  port: 1790\n"),
        peer("twin", ""),
    ];
    let (verdict, printed) = run(
        &[("pool.yaml", POOL), ("inv.yaml", inventory), ("peers.yaml", &peers.concat())],
        &["pool.yaml", "inv.yaml", "peers.yaml"],
    );
    assert_eq!(verdict, Verdict::Faulty);
    assert_eq!(
        printed,
        "pool.yaml:4:20: AddressPool public: spec.addresses[0]: 10.60.0.0/24 holds 10.60.0.1, the address of BgpPeer twin, and 2 more such: it takes addresses that no host has, or put it into spec.exclude\n\
         inv.yaml: ok (1 machine)\n\
         peers.yaml:35:12: BgpPeer twin: spec.address: 10.60.0.1 with port 179 is the router of BgpPeer one: a node keeps one session with a router, so leave one of the two, or select other nodes\n\
         peers.yaml:35:12: BgpPeer twin: spec.address: 10.60.0.1 with port 179 is the router of BgpPeer other-rack: a node keeps one session with a router, so leave one of the two, or select other nodes\n"
    );
}

#[test]
fn the_schemas_know_every_field_and_refuse_others() {
    let inventory = Format::Inventory.json_schema();
    let fields = |pointer: &str| -> Vec<String> {
        let fields = inventory.pointer(pointer).and_then(serde_json::Value::as_object);
        fields.into_iter().flatten().map(|(name, _)| name.clone()).collect()
    };
    let top = ["acknowledgedRemovals", "apiVersion", "defaults", "instanceTypes", "kind", "locations", "machines"];
    assert_eq!(fields("/properties"), top);
    assert!(fields("/$defs/MachineEntry/properties").contains(&"fencing".to_owned()));
    assert_eq!(inventory["additionalProperties"], false);
    let cloud_config = Format::CloudConfig.json_schema();
    assert!(cloud_config["properties"]["inventory"].is_object(), "{cloud_config:#}");
}

#[test]
fn each_fault_is_one_line_with_its_place() {
    for (text, want) in [
        (
            "apiVersion: cairn.dev/v1alpha1\nkind: BgpPeer\nmetadata: {name: router}\nspec:\n  localASN: 64513\n  peerAsn: 0\n  address: 10.90.0.1\n  port: bgp\n  holdTimeSeconds: 2\n",
            "f.yaml:5:3: spec.localASN: is not a field: did you mean localAsn?\n\
             f.yaml:6:12: spec.peerAsn: 0 is out of range: it takes 1 to 4294967294\n\
             f.yaml:8:9: spec.port: \"bgp\" is text: it takes a whole number, 1 to 65535\n\
             f.yaml:9:20: BgpPeer router: spec.holdTimeSeconds: 2 is too short: it takes 3 to 65535 seconds, or 0 for a session that never expires\n",
        ),
        (
            "apiVersion: cairn.dev/v1alpha1\nkind: BgpPeer\nmetadata: {name: router}\nspec: {localAsn: 23456, peerAsn: 1, address: fe80::1, holdTimeSeconds: 2}\n",
            "f.yaml:4:18: BgpPeer router: spec.localAsn: 23456 is not an AS number: it takes 1 to 4294967294, without 23456 and 65535 (RFC 6793, RFC 7300)\n\
             f.yaml:4:46: BgpPeer router: spec.address: fe80::1 is a link-local address: it takes an address of the router itself, such as 10.90.0.1 or fd90::1\n\
             f.yaml:4:72: BgpPeer router: spec.holdTimeSeconds: 2 is too short: it takes 3 to 65535 seconds, or 0 for a session that never expires\n",
        ),
        (
            "apiVersion: cairn.dev/v1alpha1\nkind: AddressPool\nspec: {addresses: []}\n",
            "f.yaml:1:1: metadata: is missing: it takes a mapping of annotations, labels, name\n\
             f.yaml:3:19: spec.addresses: is empty: it takes at least one entry\n",
        ),
        (
            "apiVersion: cairn.dev/v1beta1\nkind: AddressPool\n",
            "f.yaml:1:13: apiVersion: \"cairn.dev/v1beta1\" is not that of AddressPool here: it takes cairn.dev/v1alpha1\n",
        ),
        (
            "apiVersion: cairn.dev/v1alpha1\nkind: AdressPool\n",
            "f.yaml:2:7: kind: \"AdressPool\" is not a kind: did you mean AddressPool?\n",
        ),
        (
            "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\n",
            "f.yaml:2:7: kind: MetalLB's IPAddressPool is what AddressPool of cairn.dev/v1alpha1 is here: \
             \"Coming from MetalLB\" in README.md says what becomes of its fields\n",
        ),
        (
            "apiVersion: metallb.io/v1beta2\nkind: BFDProfile\n",
            "f.yaml:2:7: kind: MetalLB's BFDProfile has no object in its place here: \
             \"Coming from MetalLB\" in README.md says what becomes of its fields\n",
        ),
        (
            "machines: []\n",
            "f.yaml:1:1: apiVersion: is missing: it says what the document is\n\
             f.yaml:1:1: kind: is missing: it says what the document is\n",
        ),
        ("just words\n", "f.yaml:1:1: is not an object: it takes a mapping that starts with apiVersion and kind\n"),
        ("", "f.yaml: is empty: it takes at least one YAML document\n"),
    ] {
        assert_eq!(run(&[("f.yaml", text)], &["f.yaml"]), (Verdict::Faulty, want.to_owned()), "{text}");
    }
}

#[test]
fn objects_of_kubernetes_are_left_to_it() {
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n";
    let (verdict, printed) = run(&[("web.yaml", service)], &["web.yaml"]);
    assert_eq!(verdict, Verdict::Right);
    assert_eq!(printed, "web.yaml: ok (Service web not checked, it is Kubernetes' own)\n");
}

#[test]
fn a_cloud_config_brings_the_files_it_names() {
    let config = "apiVersion: config.cairn.dev/v1alpha1\nkind: CloudConfig\ninventory:\n  files: [a.yaml, none.yaml]\n";
    let (verdict, printed) = run(&[("c.yaml", config), ("a.yaml", INVENTORY)], &["c.yaml"]);
    assert_eq!(verdict, Verdict::Faulty);
    assert_eq!(
        printed,
        "c.yaml:4:19: inventory.files[1]: none.yaml does not exist: it takes a path from this file's folder\n\
         a.yaml: ok (2 machines)\n"
    );
}

#[test]
fn a_link_in_circles_is_there_and_cannot_be_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    std::os::unix::fs::symlink(path("one.yaml"), path("other.yaml")).expect("a link");
    std::os::unix::fs::symlink(path("other.yaml"), path("one.yaml")).expect("a link");
    let config = "apiVersion: config.cairn.dev/v1alpha1\nkind: CloudConfig\ninventory: {files: [one.yaml]}\n";
    fs::write(path("c.yaml"), config).expect("a file");
    let (verdict, printed) = validate(&[path("c.yaml")]);
    assert_eq!(verdict, Verdict::Faulty);
    assert!(printed.contains("one.yaml: cannot be read (Too many levels of symbolic links"), "{printed}");
}

#[test]
fn files_are_checked_side_by_side() {
    let other = POOL.replace("10.60.0.0/24", "10.60.0.128-10.60.1.4");
    let locations = "apiVersion: inventory.cairn.dev/v1\nkind: Inventory\nlocations: {r1: {}}\nmachines: [{id: b}]\n";
    let files = [("a.yaml", POOL), ("b.yaml", &other), ("i.yaml", INVENTORY), ("j.yaml", locations)];
    let (verdict, printed) = run(&files, &["a.yaml", "b.yaml", "i.yaml", "j.yaml"]);
    assert_eq!(verdict, Verdict::Faulty);
    assert_eq!(
        printed,
        "a.yaml: ok (AddressPool public)\n\
         b.yaml:3:18: metadata.name: AddressPool public is already at a.yaml:3:18: metadata.name: each takes a name of its own\n\
         b.yaml:4:19: AddressPool public: spec.addresses: 10.60.0.128-10.60.1.4 shares addresses with 10.60.0.0/24 of AddressPool public in a.yaml: each address takes one pool\n\
         i.yaml: ok (2 machines)\n\
         j.yaml:4:17: machines[0].id: machine id b is already at i.yaml:5:8: machines[1].id: each takes its own\n"
    );
}

const CONFIG: &str = "apiVersion: config.cairn.dev/v1alpha1\nkind: CloudConfig\ninventory: {files: [FILES]}\n";

#[test]
fn a_file_of_one_document_is_refused_a_second() {
    let config = CONFIG.replace("FILES", "i.yaml");
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n";
    let migration =
        "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: m\n";
    for (name, text, want) in [
        (
            "two cloud configs",
            format!("{config}---\n{config}"),
            "f.yaml:5:1: has several documents: a cloud config takes one",
        ),
        (
            "after an object",
            format!("{map}---\n{config}"),
            "f.yaml:5:1: has several documents: a cloud config takes one",
        ),
        (
            "two leader migrations",
            format!("{migration}---\n{migration}"),
            "f.yaml:5:1: has several documents: it takes one LeaderMigrationConfiguration",
        ),
    ] {
        let (verdict, printed) = run(&[("f.yaml", &text), ("i.yaml", INVENTORY)], &["f.yaml"]);
        assert_eq!(verdict, Verdict::Faulty, "{name}: {printed}");
        assert!(printed.lines().any(|line| line == want), "{name}: {printed}");
    }
}

#[test]
fn a_file_of_the_inventory_that_is_none_is_refused() {
    let is_no_inventory = |file: &str, version: &str, kind: &str| {
        format!(
            "{file}:1:13: apiVersion: {version:?} is not right in this file: it takes inventory.cairn.dev/v1\n\
             {file}:2:7: kind: {kind:?} is not right in this file: it takes Inventory\n"
        )
    };
    let (config, pool) = (
        is_no_inventory("c.yaml", "config.cairn.dev/v1alpha1", "CloudConfig"),
        is_no_inventory("pool.yaml", "cairn.dev/v1alpha1", "AddressPool"),
    );
    let inventory = "i.yaml: ok (2 machines)\n";
    let machines = INVENTORY.replace(", location: r1", "");
    for (name, files, given, want) in [
        ("its own folder", "'.'", vec!["c.yaml"], format!("{config}{inventory}{pool}")),
        ("itself", "c.yaml, i.yaml", vec!["c.yaml"], format!("{config}{inventory}")),
        ("a pool", "pool.yaml", vec!["c.yaml"], format!("c.yaml: ok (cloud config)\n{pool}")),
        (
            "a pool that was given before",
            "pool.yaml",
            vec!["pool.yaml", "c.yaml"],
            format!("{pool}c.yaml: ok (cloud config)\n"),
        ),
        (
            "one that is also given after",
            "i.yaml",
            vec!["c.yaml", "pool.yaml"],
            format!("c.yaml: ok (cloud config)\n{inventory}pool.yaml: ok (AddressPool public)\n"),
        ),
    ] {
        let text = CONFIG.replace("FILES", files);
        let (_, printed) = run(&[("c.yaml", &text), ("i.yaml", &machines), ("pool.yaml", POOL)], &given);
        assert_eq!(printed.replace("./", ""), want, "{name}");
    }
}

#[test]
fn the_group_of_the_leader_migration_is_checked() {
    let with = |version: &str, kind: &str, lease: &str| {
        format!("apiVersion: controllermanager.config.k8s.io/{version}\nkind: {kind}\nleaderName: {lease}\n")
    };
    for (name, text, verdict, want) in [
        (
            "half of the name",
            with("v1", "LeaderMigration", "m"),
            Verdict::Faulty,
            "m.yaml:2:7: kind: LeaderMigration of controllermanager.config.k8s.io/v1 is none that can be checked: it takes",
        ),
        (
            "half of the name, and no version that is known",
            with("v7", "LeaderMigrations", "m"),
            Verdict::Faulty,
            "m.yaml:2:7: kind: LeaderMigrations of controllermanager.config.k8s.io/v7 is none that can be checked",
        ),
        (
            "the main Lease",
            with("v1", "LeaderMigrationConfiguration", "cloud-controller-manager"),
            Verdict::Right,
            "m.yaml: ok (leader migration under Lease cloud-controller-manager)\n\
             m.yaml:3:13: leaderName: \"cloud-controller-manager\" is the name of the main Lease too, which the \
             controller refuses",
        ),
    ] {
        let (said, printed) = run(&[("m.yaml", &text)], &["m.yaml"]);
        assert!(said == verdict && printed.starts_with(want), "{name}: {printed}");
    }
}

#[test]
fn the_items_of_a_list_are_checked() {
    let list = |items: &str| format!("apiVersion: v1\nkind: List\nitems:{items}");
    let pool = "\n- apiVersion: cairn.dev/v1alpha1\n  kind: AddressPool\n  metadata: {name: public}\n  \
                spec: {addresses: [10.60.0.0/24]}\n";
    let service = "- {apiVersion: v1, kind: Service, metadata: {name: web}}\n";
    for (name, text, want) in [
        (
            "right",
            list(&format!("{pool}{service}")),
            "l.yaml: ok (List of AddressPool public, Service web not checked, it is Kubernetes' own)\n".to_owned(),
        ),
        ("empty", list(" []\n"), "l.yaml: ok (List of nothing)\n".to_owned()),
        (
            "a fault in an item",
            list(&pool.replace("10.60.0.0/24", "10.60.0.0/33")),
            "l.yaml:7:22: AddressPool public: spec.addresses[0]: ".to_owned(),
        ),
        (
            "one twice",
            list(&format!("{pool}{}", pool.trim_start())),
            "l.yaml:10:20: metadata.name: AddressPool public is already at l.yaml:6:20: ".to_owned(),
        ),
        (
            "what is read from a file",
            list("\n- {apiVersion: config.cairn.dev/v1alpha1, kind: CloudConfig, inventory: {files: [i.yaml]}}\n"),
            "l.yaml:4:49: kind: CloudConfig is read from a file, not from a List: it takes one of its own\n".to_owned(),
        ),
        ("no list", list(" {}\n"), "l.yaml:3:8: items: is no list: it takes the objects of the List\n".to_owned()),
        ("words", list(" [pool]\n"), "l.yaml:3:9: is not an object: ".to_owned()),
    ] {
        let (_, printed) = run(&[("l.yaml", &text)], &["l.yaml"]);
        assert!(printed.starts_with(&want), "{name}: {printed}");
    }
}

#[test]
fn the_help_names_every_object_that_is_checked() {
    let mut command = crate::cli::Cli::command();
    let verb = command.find_subcommand_mut("validate").expect("a verb").render_help().to_string();
    for help in [command.render_help().to_string(), verb] {
        for kind in Kind::ALL.into_iter().filter(|kind| kind.is_object()) {
            assert!(help.contains(kind.name()), "{} is not in\n{help}", kind.name());
        }
    }
}

#[test]
fn a_folder_without_files_is_told() {
    let (verdict, printed) = run(&[("notes.txt", "")], &[""]);
    assert_eq!(verdict, Verdict::Faulty);
    assert!(printed.ends_with("has no file that ends in .yaml or .yml: it takes at least one\n"), "{printed}");
}
