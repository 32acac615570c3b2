//! Users, roles and the audit.

use holdfast_core::{
    ADMIN_ROLE, AccessBound, AccessChange, AccessRefusal, Acquire, Actor, Answer, AuditAction,
    AuditEntry, Command, Door, Effect, Label, Lease, Limits, LockName, Mode, Operation,
    PasswordHash, ProposalOutcome, Reason, Refusal, Right, Rights, RoleName, Rule, SHARED_USER,
    Secret, State, TicketStatus, TokenHash, UserName, Wait,
};

fn user(name: &str) -> UserName {
    UserName::parse(name).unwrap()
}

fn role(name: &str) -> RoleName {
    RoleName::parse(name).unwrap()
}

fn label(text: &str) -> Label {
    Label::parse(text).unwrap()
}

fn rule(prefix: &str, rights: &[Right]) -> Rule {
    let prefix = LockName::parse(prefix).ok();
    Rule { prefix, rights: rights.iter().copied().collect() }
}

fn password() -> Option<PasswordHash> {
    PasswordHash::parse("$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaA")
}

struct Bench {
    state: State,
    effects: Vec<Effect>,
}

impl Bench {
    fn new(limits: Limits) -> Self {
        Self { state: State::new(limits, 1), effects: Vec::new() }
    }

    fn apply(&mut self, command: Command) -> Result<Answer, Refusal> {
        match self.state.apply(command.into(), &mut self.effects) {
            ProposalOutcome::Answered(answer) => answer,
            outcome => panic!("{outcome:?}"),
        }
    }

    fn operate(&mut self, operation: Operation) -> Result<Answer, Refusal> {
        let by = Actor {
            user: Some(user("ana")),
            address: Some([10, 0, 0, 9].into()),
            door: Door::Native,
        };
        self.apply(Command::Operate { by, operation: Box::new(operation) })
    }

    fn change(&mut self, change: AccessChange) -> Result<Answer, AccessRefusal> {
        self.change_keeping_admin(change, false)
    }

    fn change_keeping_admin(
        &mut self,
        change: AccessChange,
        keep_admin: bool,
    ) -> Result<Answer, AccessRefusal> {
        self.operate(Operation::Access { change, keep_admin }).map_err(|refusal| match refusal {
            Refusal::Access(refusal) => refusal,
            refusal => panic!("{refusal:?}"),
        })
    }

    fn add_user(&mut self, name: &str, roles: &[&str]) -> Result<Answer, AccessRefusal> {
        let roles = roles.iter().map(|name| role(name)).collect();
        self.change(AccessChange::AddUser { user: user(name), password: password(), roles })
    }

    fn put_role(&mut self, name: &str, rules: Vec<Rule>) -> Result<Answer, AccessRefusal> {
        self.change(AccessChange::PutRole { role: role(name), rules })
    }

    /// The newest record first: what was done to what, and whether it was refused.
    fn audit(&self) -> Vec<(AuditAction, String, String, bool)> {
        let record = |record: &holdfast_core::AuditRecord| {
            let AuditEntry { action, subject, detail } = &record.entry;
            (*action, subject.to_string(), detail.to_string(), record.refused.is_some())
        };
        self.state.audit().map(record).collect()
    }
}

#[test]
fn roles_give_rights_by_prefix() {
    let mut bench = Bench::new(Limits::DEFAULT);
    let rules = vec![rule("jobs/", &[Right::Use]), rule("", &[Right::Operate])];
    bench.put_role("jobs", rules).unwrap();
    bench.add_user("ana", &["jobs"]).unwrap();
    bench.add_user("root", &[ADMIN_ROLE]).unwrap();
    bench.add_user("idle", &[]).unwrap();
    let accounts = bench.state.accounts().clone();
    let may = |name: &str, right, lock: &str| accounts.may(&user(name), right, lock.as_bytes());
    assert!(may("ana", Right::Use, "jobs/1"));
    // Who may use or operate may also look.
    assert!(may("ana", Right::Read, "jobs/1") && may("ana", Right::Read, "other"));
    assert!(!may("ana", Right::Use, "job") && !may("ana", Right::Admin, ""));
    assert!(Right::ALL.into_iter().all(|right| may("root", right, "anything")));
    assert!(!Right::ALL.into_iter().any(|right| may("idle", right, "jobs/1")));
    assert!(!may("nobody", Right::Read, "jobs/1"));
    assert!(may(SHARED_USER, Right::Admin, ""));

    // A change of the role is a change for its users; the copy that somebody has stays as it was.
    bench.put_role("jobs", vec![rule("jobs/", &[Right::Read])]).unwrap();
    assert!(!bench.state.accounts().may(&user("ana"), Right::Use, b"jobs/1"));
    assert!(may("ana", Right::Use, "jobs/1"));
}

#[test]
fn changes_that_make_no_sense_are_refused_and_change_nothing() {
    let mut bench = Bench::new(Limits::DEFAULT);
    bench.put_role("jobs", vec![rule("jobs/", &[Right::Use])]).unwrap();
    bench.add_user("ana", &["jobs"]).unwrap();
    let before = format!("{:?}", bench.state.accounts());
    assert_eq!(bench.add_user("ana", &[]), Err(AccessRefusal::UserExists(user("ana"))));
    assert_eq!(
        bench.add_user(SHARED_USER, &[]),
        Err(AccessRefusal::ReservedName(user(SHARED_USER)))
    );
    assert_eq!(bench.add_user("bo", &["none"]), Err(AccessRefusal::NoRole(role("none"))));
    let removed = bench.change(AccessChange::RemoveRole(role("jobs")));
    assert_eq!(removed, Err(AccessRefusal::RoleInUse { role: role("jobs"), user: user("ana") }));
    let built_in = bench.put_role(ADMIN_ROLE, Vec::new());
    assert_eq!(built_in, Err(AccessRefusal::BuiltInRole(role(ADMIN_ROLE))));
    assert_eq!(bench.put_role("x", vec![rule("a/", &[Right::Admin])]), Err(AccessRefusal::BadRule));
    assert_eq!(bench.put_role("x", vec![rule("a/", &[])]), Err(AccessRefusal::BadRule));
    let nobody = bench.change(AccessChange::RemoveUser(user("bo")));
    assert_eq!(nobody, Err(AccessRefusal::NoUser(user("bo"))));
    let token = bench.change(AccessChange::RemoveToken { user: user("ana"), id: 7 });
    assert_eq!(token, Err(AccessRefusal::NoToken(7)));
    assert_eq!(format!("{:?}", bench.state.accounts()), before);
}

/// Without a shared password, removing the last administrator would leave a cluster that nobody can
/// manage.
#[test]
fn an_administrator_is_left() {
    let mut bench = Bench::new(Limits::DEFAULT);
    bench.put_role("jobs", vec![rule("jobs/", &[Right::Use])]).unwrap();
    let add = |name: &str, roles: &[&str]| AccessChange::AddUser {
        user: user(name),
        password: None,
        roles: roles.iter().map(|name| role(name)).collect(),
    };
    let first = bench.change_keeping_admin(add("ana", &["jobs"]), true);
    assert_eq!(first, Err(AccessRefusal::NoAdmin));
    bench.change_keeping_admin(add("root", &[ADMIN_ROLE]), true).unwrap();
    bench.change_keeping_admin(add("ana", &["jobs"]), true).unwrap();
    let last = AccessChange::RemoveUser(user("root"));
    assert_eq!(bench.change_keeping_admin(last.clone(), true), Err(AccessRefusal::NoAdmin));
    let demoted = AccessChange::SetRoles { user: user("root"), roles: vec![role("jobs")] };
    assert_eq!(bench.change_keeping_admin(demoted, true), Err(AccessRefusal::NoAdmin));
    // The last user of all may go: then nobody has to log in any more.
    bench.change_keeping_admin(AccessChange::RemoveUser(user("ana")), true).unwrap();
    bench.change_keeping_admin(last, true).unwrap();
    assert!(bench.state.accounts().is_empty());
}

#[test]
fn tokens_belong_to_their_user_until_one_of_both_is_removed() {
    let mut bench = Bench::new(Limits::DEFAULT);
    bench.add_user("ana", &[]).unwrap();
    let hashes = [1, 2].map(|byte| TokenHash([byte; 32]));
    let ids = hashes.map(|hash| {
        let add = AccessChange::AddToken { user: user("ana"), hash, note: label("cron") };
        match bench.change(add).unwrap() {
            Answer::TokenAdded { id } => id,
            answer => panic!("{answer:?}"),
        }
    });
    assert_eq!(bench.state.accounts().user_of(&hashes[0]), Some(&user("ana")));
    bench.change(AccessChange::RemoveToken { user: user("ana"), id: ids[0] }).unwrap();
    assert_eq!(bench.state.accounts().user_of(&hashes[0]), None);
    bench.change(AccessChange::RemoveUser(user("ana"))).unwrap();
    assert_eq!(bench.state.accounts().user_of(&hashes[1]), None);
    // Its name may be used again, its tokens may not, and ids are never used twice.
    bench.add_user("ana", &[]).unwrap();
    assert_eq!(bench.state.accounts().user_of(&hashes[1]), None);
    let add = AccessChange::AddToken { user: user("ana"), hash: hashes[1], note: label("") };
    assert_eq!(bench.change(add), Ok(Answer::TokenAdded { id: 3 }));
}

#[test]
fn what_operators_do_is_recorded_with_who_did_it() {
    let mut bench = Bench::new(Limits::DEFAULT);
    let name = LockName::parse("seat-12A").unwrap();
    let acquire = Acquire {
        names: vec![name.clone()],
        mode: Mode::Exclusive,
        session: None,
        lease: Lease::Permanent,
        wait: Wait::Try,
        label: Some(label("bo")),
        note: None,
        secret: Some(Secret([1; 16])),
        claims: Vec::new(),
        lock_delay_ms: 0,
        door: Door::Native,
    };
    let held = bench.apply(Command::Acquire(acquire)).unwrap();
    assert!(matches!(held, Answer::TicketStatus(TicketStatus::Held(_))), "{held:?}");
    let force = || Operation::Force {
        name: name.clone(),
        token: None,
        by: label("ana"),
        reason: Reason::parse("stuck").unwrap(),
    };
    assert_eq!(bench.operate(force()), Ok(Answer::Forced(1)));
    assert!(bench.operate(force()).is_err());
    let entry =
        AuditEntry { action: AuditAction::LoginFailed, subject: label("eve"), detail: label("") };
    assert_eq!(bench.operate(Operation::Record(entry)), Ok(Answer::Recorded));
    let broken =
        |refused| (AuditAction::LockBroken, "seat-12A".to_owned(), "stuck".to_owned(), refused);
    let login = (AuditAction::LoginFailed, "eve".to_owned(), String::new(), false);
    assert_eq!(bench.audit(), [login, broken(true), broken(false)]);
    let newest = bench.state.audit().next().unwrap();
    assert_eq!(newest.by.user, Some(user("ana")));
    assert_eq!(newest.by.address, Some([10, 0, 0, 9].into()));
    // Every node sees what is recorded.
    let audited = bench.effects.iter().filter(|effect| matches!(effect, Effect::Audited(_)));
    assert_eq!(audited.count(), 3);
}

#[test]
fn passwords_and_tokens_appear_in_no_record() {
    let mut bench = Bench::new(Limits::DEFAULT);
    bench.add_user("ana", &[]).unwrap();
    let add = AccessChange::AddToken {
        user: user("ana"),
        hash: TokenHash([0xab; 32]),
        note: label("cron"),
    };
    bench.change(add).unwrap();
    let shown = format!("{:?} {:?}", bench.audit(), bench.effects);
    assert!(!shown.contains("argon2") && !shown.contains("171, 171"), "{shown}");
}

#[test]
fn users_roles_and_the_audit_survive_a_snapshot() {
    let mut bench = Bench::new(Limits::DEFAULT);
    bench.put_role("jobs", vec![rule("jobs/", &[Right::Use, Right::Operate])]).unwrap();
    bench.add_user("ana", &["jobs", ADMIN_ROLE]).unwrap();
    for number in 0..600 {
        bench.add_user(&format!("user-{number}"), &["jobs"]).unwrap();
    }
    let hash = TokenHash([9; 32]);
    bench.change(AccessChange::AddToken { user: user("ana"), hash, note: label("") }).unwrap();
    let snapshot = bench.state.snapshot();
    let pieces: Vec<Vec<u8>> = snapshot.pieces().collect::<Result<_, _>>().unwrap();
    let mut loaded = State::load(&pieces, Limits::DEFAULT, 2).unwrap();
    assert_eq!(format!("{:?}", loaded.accounts()), format!("{:?}", bench.state.accounts()));
    let records = |state: &State| state.audit().cloned().collect::<Vec<_>>();
    assert_eq!(records(&loaded), records(&bench.state));
    assert_eq!(loaded.accounts().user_of(&hash), Some(&user("ana")));
    // Another token gets the next id, not the first again.
    let mut effects = Vec::new();
    let by = Actor { user: None, address: None, door: Door::Native };
    let change =
        AccessChange::AddToken { user: user("ana"), hash: TokenHash([8; 32]), note: label("") };
    let operation = Box::new(Operation::Access { change, keep_admin: false });
    let added = loaded.apply(Command::Operate { by, operation }.into(), &mut effects);
    assert_eq!(added, ProposalOutcome::Answered(Ok(Answer::TokenAdded { id: 2 })));
    // A missing piece is noticed.
    let short: Vec<_> = pieces[..pieces.len() - 1].to_vec();
    assert!(State::load(&short, Limits::DEFAULT, 2).is_err());
}

/// A restored cluster has the same users: a backup is as secret as the data.
#[test]
fn users_survive_a_restore() {
    let mut bench = Bench::new(Limits::DEFAULT);
    bench.add_user("ana", &[ADMIN_ROLE]).unwrap();
    bench.state.restore(1_800_000_000).unwrap();
    assert!(bench.state.accounts().may(&user("ana"), Right::Admin, b""));
}

#[test]
fn everything_is_bounded() {
    let limits = Limits {
        users_max: 2,
        roles_max: 1,
        rules_per_role_max: 1,
        roles_per_user_max: 1,
        tokens_per_user_max: 1,
        audit_max: 3,
        ..Limits::DEFAULT
    };
    let mut bench = Bench::new(limits);
    let full = |what, max| Err(AccessRefusal::Full { what, max });
    let rules = || vec![rule("a/", &[Right::Use])];
    bench.put_role("one", rules()).unwrap();
    assert_eq!(bench.put_role("two", rules()), full(AccessBound::Roles, 1));
    let two = [rules(), rules()].concat();
    assert_eq!(bench.put_role("one", two), full(AccessBound::RulesOfRole, 1));
    assert_eq!(bench.add_user("ana", &["one", ADMIN_ROLE]), full(AccessBound::RolesOfUser, 1));
    bench.add_user("ana", &["one"]).unwrap();
    bench.add_user("bo", &[]).unwrap();
    assert_eq!(bench.add_user("cy", &[]), full(AccessBound::Users, 2));
    let token = |byte| AccessChange::AddToken {
        user: user("ana"),
        hash: TokenHash([byte; 32]),
        note: label(""),
    };
    bench.change(token(1)).unwrap();
    assert_eq!(bench.change(token(2)), full(AccessBound::TokensOfUser, 1));
    // The oldest records are dropped, and numbers go on.
    let numbers: Vec<u64> = bench.state.audit().map(|record| record.number).collect();
    assert_eq!(numbers, [8, 7, 6]);
}

#[test]
fn names_of_users_are_plain() {
    for good in ["ana", "a", "db-1.internal", "ana@example.org", "0_0"] {
        assert!(UserName::parse(good).is_ok(), "{good}");
    }
    for bad in ["", "-a", "a b", "a:b", "ana\n", "ñ", &"x".repeat(65)] {
        assert!(UserName::parse(bad).is_err(), "{bad}");
    }
    assert_eq!(Rights::ALL.iter().collect::<Vec<_>>(), Right::ALL);
}
