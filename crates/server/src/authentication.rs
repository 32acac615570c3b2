//! Who a client is: the one place where every door has its clients proven.
//!
//! A client proves itself with the password that all nodes share, with the name and password of a
//! user, with a bearer token, or with a certificate. Hashing a password takes tens of milliseconds,
//! so it happens on a thread of its own, one at a time, and a password that was right is remembered
//! as a hash that only this process can compute. Failures slow down the address they come from.

use crate::engine::Engine;
use crate::password::Password;
use crate::random;
use argon2::Argon2;
use argon2::password_hash::{PasswordHasher, PasswordVerifier, SaltString};
use hmac::{Hmac, Mac};
use holdfast_core::{AuditAction, Door, PasswordHash, SHARED_USER, TokenHash, UserName};
use holdfast_gateway::{ApiError, Caller, Code, audit_entry};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// A longer password is refused: every byte is hashed.
const PASSWORD_BYTES_MAX: usize = 1_024;

/// Passwords that are remembered. At about 200 bytes each, all stay near 1 MB.
const VERIFIED_MAX: usize = 4_096;

/// Addresses whose failures are remembered. At about 100 bytes each, all stay near 1 MB.
const ADDRESSES_MAX: usize = 8_192;

/// Failures of one address before it is slowed down.
const FREE_FAILURES: u32 = 3;

/// The delay after the first failure that counts; it doubles with each further one.
const DELAY: Duration = Duration::from_millis(200);

/// The longest delay.
const DELAY_MAX: Duration = Duration::from_secs(10);

/// Failures are forgotten this long after the last one.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// Logins that may wait for their turn to be hashed; further ones are refused.
const WAITING_MAX: usize = 64;

/// A token is recognised by how it begins, by people and by scanners for leaked secrets.
const TOKEN_PREFIX: &str = "hft_";

/// Why a client was not authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoginError {
    /// The name, the password or the token is wrong.
    Wrong,
    /// Too many logins at once, or too many failures from this address.
    TooMany,
}

impl From<LoginError> for ApiError {
    fn from(error: LoginError) -> Self {
        match error {
            LoginError::Wrong => ApiError::new(
                Code::Unauthenticated,
                "wrong user, password or token",
                "send `Authorization: Bearer TOKEN`, or the name and password of a user",
            ),
            LoginError::TooMany => ApiError::new(
                Code::Busy,
                "too many logins from this address have failed, or too many are waiting",
                "wait some seconds, then try again",
            ),
        }
    }
}

/// The failures of one address.
struct Failures {
    count: u32,
    last: Instant,
}

pub(crate) struct Authenticator {
    shared: Option<Password>,
    engine: Engine,
    /// The key of the hashes in `verified`.
    key: [u8; 32],
    /// Passwords that were right, and the stored hash that they matched.
    verified: Mutex<HashMap<[u8; 32], PasswordHash>>,
    failures: Mutex<HashMap<IpAddr, Failures>>,
    hashing: Arc<Semaphore>,
    waiting: Semaphore,
}

impl Authenticator {
    pub(crate) fn new(shared: Option<Password>, engine: Engine) -> Self {
        Self {
            shared,
            engine,
            key: random::bytes(),
            verified: Mutex::default(),
            failures: Mutex::default(),
            hashing: Arc::new(Semaphore::new(1)),
            waiting: Semaphore::new(WAITING_MAX),
        }
    }

    /// Whether clients must prove who they are.
    pub(crate) fn is_required(&self) -> bool {
        self.shared.is_some() || !self.engine.accounts().is_empty()
    }

    /// Whether there is such a user, so that its password must be right.
    pub(crate) fn knows(&self, user: &UserName) -> bool {
        match user.as_str() {
            SHARED_USER => self.shared.is_some(),
            _ => self.engine.accounts().user(user).is_some(),
        }
    }

    /// The password that all nodes share, for a protocol with a form of its own.
    pub(crate) fn shared(&self) -> Option<&Password> {
        self.shared.as_ref()
    }

    /// The client as the user that its certificate names, if there is one.
    pub(crate) fn by_certificate(&self, caller: Caller, name: Option<&UserName>) -> Caller {
        match name.filter(|name| self.engine.accounts().user(name).is_some()) {
            Some(user) => caller.authenticated(user.clone()),
            None => caller,
        }
    }

    /// Whether a password is right, as far as this can be said without hashing it.
    pub(crate) fn check_quickly(&self, user: &UserName, password: &[u8]) -> Option<bool> {
        if user.as_str() == SHARED_USER {
            return Some(self.shared.as_ref().is_some_and(|shared| shared.is(password)));
        }
        self.is_verified(user, password).then_some(true)
    }

    /// The client with a bearer token, or with the shared password in its place.
    pub(crate) async fn by_token(
        &self,
        caller: Caller,
        token: &[u8],
    ) -> Result<Caller, LoginError> {
        if self.shared.as_ref().is_some_and(|shared| shared.is(token)) {
            return shared_user().map(|user| caller.authenticated(user));
        }
        let hash = TokenHash(Sha256::digest(token).into());
        match self.engine.accounts().user_of(&hash) {
            Some(user) => Ok(caller.authenticated(user.clone())),
            None => {
                self.delay(&caller).await?;
                Err(self.failed(&caller, "a token or the cluster's password"))
            }
        }
    }

    /// The client with the name and password of a user; `None` for the shared password.
    pub(crate) async fn by_password(
        &self,
        caller: Caller,
        user: Option<&[u8]>,
        password: &[u8],
    ) -> Result<Caller, LoginError> {
        let name = user.map_or(Some(SHARED_USER), |user| std::str::from_utf8(user).ok());
        let name = name.and_then(|name| UserName::parse(name).ok());
        let right = match &name {
            Some(name) if self.check_quickly(name, password) == Some(true) => true,
            Some(name) if name.as_str() == SHARED_USER => {
                self.delay(&caller).await?;
                false
            }
            name => {
                self.delay(&caller).await?;
                self.verify(name.as_ref(), password).await?
            }
        };
        match name.filter(|_| right) {
            Some(name) => Ok(caller.authenticated(name)),
            None => {
                let user = String::from_utf8_lossy(user.unwrap_or_default()).into_owned();
                Err(self.failed(&caller, &user))
            }
        }
    }

    fn fingerprint(&self, user: &UserName, password: &[u8]) -> [u8; 32] {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.key) else { return [0; 32] };
        mac.update(user.as_str().as_bytes());
        mac.update(&[0]);
        mac.update(password);
        mac.finalize().into_bytes().into()
    }

    /// Whether the password was right before, and has not been changed since.
    fn is_verified(&self, user: &UserName, password: &[u8]) -> bool {
        let accounts = self.engine.accounts();
        let stored = accounts.user(user).and_then(|user| user.password.as_ref());
        let verified = lock(&self.verified);
        stored.is_some() && verified.get(&self.fingerprint(user, password)) == stored
    }

    /// Hashes the password, also if there is no such user: the time must not tell.
    async fn verify(&self, user: Option<&UserName>, password: &[u8]) -> Result<bool, LoginError> {
        if password.len() > PASSWORD_BYTES_MAX {
            return Ok(false);
        }
        let _waiting = self.waiting.try_acquire().map_err(|_| LoginError::TooMany)?;
        let Ok(permit) = self.hashing.clone().acquire_owned().await else { return Ok(false) };
        let accounts = self.engine.accounts();
        let stored = user.and_then(|user| accounts.user(user)?.password.clone());
        let (sent, expected) = (password.to_vec(), stored.clone());
        // The permit goes along: if the client goes away, the thread is still busy.
        let verified = spawn_blocking(move || {
            let matches = matches(&sent, expected.as_ref());
            drop(permit);
            matches
        });
        let right = verified.await.unwrap_or(false);
        if let (true, Some(user), Some(stored)) = (right, user, stored) {
            let mut verified = lock(&self.verified);
            if verified.len() >= VERIFIED_MAX {
                verified.clear();
            }
            verified.insert(self.fingerprint(user, password), stored);
        }
        Ok(right)
    }

    /// Waits as long as earlier failures of this address ask for.
    async fn delay(&self, caller: &Caller) -> Result<(), LoginError> {
        let Some(address) = caller.address() else { return Ok(()) };
        let delay = {
            let failures = lock(&self.failures);
            let recent = failures.get(&address).filter(|f| f.last.elapsed() < FORGET_AFTER);
            recent.map_or(Duration::ZERO, |failures| delay_after(failures.count))
        };
        if delay.is_zero() {
            return Ok(());
        }
        let _waiting = self.waiting.try_acquire().map_err(|_| LoginError::TooMany)?;
        tokio::time::sleep(delay).await;
        Ok(())
    }

    /// Records that a user has no right to what it asked for.
    pub(crate) fn note_refusal(&self, caller: &Caller, what: &str) {
        if let Some(entry) = audit_entry(AuditAction::RightRefused, what.as_bytes(), "") {
            self.engine.record(caller, entry);
        }
    }

    /// Records that a client was refused.
    pub(crate) fn note_failure(&self, door: Door, address: IpAddr, who: &str) {
        self.failed(&Caller::new(door, Some(address)), who);
    }

    fn failed(&self, caller: &Caller, who: &str) -> LoginError {
        if let Some(address) = caller.address() {
            let mut failures = lock(&self.failures);
            if failures.len() >= ADDRESSES_MAX {
                failures.retain(|_, failures| failures.last.elapsed() < FORGET_AFTER);
            }
            if failures.len() < ADDRESSES_MAX {
                let entry = failures.entry(address);
                let entry = entry.or_insert(Failures { count: 0, last: Instant::now() });
                if entry.last.elapsed() >= FORGET_AFTER {
                    entry.count = 0;
                }
                (entry.count, entry.last) = (entry.count.saturating_add(1), Instant::now());
            }
        }
        let shown: String = who.chars().take(64).collect();
        if let Some(entry) = audit_entry(AuditAction::LoginFailed, shown.as_bytes(), "") {
            self.engine.record(caller, entry);
        }
        LoginError::Wrong
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while holding one of these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shared_user() -> Result<UserName, LoginError> {
    UserName::parse(SHARED_USER).map_err(|_| LoginError::Wrong)
}

fn delay_after(failures: u32) -> Duration {
    match failures.checked_sub(FREE_FAILURES) {
        None => Duration::ZERO,
        Some(more) => DELAY.saturating_mul(1 << more.min(16)).min(DELAY_MAX),
    }
}

/// Takes as long whether there is a hash to match or not.
fn matches(password: &[u8], stored: Option<&PasswordHash>) -> bool {
    match stored.and_then(|stored| argon2::PasswordHash::new(stored.as_str()).ok()) {
        Some(stored) => Argon2::default().verify_password(password, &stored).is_ok(),
        None => {
            let _ = hash(password);
            false
        }
    }
}

fn hash(password: &[u8]) -> Option<PasswordHash> {
    let salt = SaltString::encode_b64(&random::bytes::<16>()).ok()?;
    let hash = Argon2::default().hash_password(password, &salt).ok()?;
    PasswordHash::parse(&hash.to_string())
}

/// Hashes a new password, off the calling thread.
pub(crate) async fn hash_password(password: Vec<u8>) -> Result<PasswordHash, ApiError> {
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        let message = format!("a password has 1 to {PASSWORD_BYTES_MAX} bytes");
        return Err(ApiError::bad(message, "choose another"));
    }
    let hashed = spawn_blocking(move || hash(&password)).await.ok().flatten();
    hashed.ok_or_else(ApiError::unexpected)
}

/// A new bearer token, and what is stored of it.
pub(crate) fn new_token() -> (String, TokenHash) {
    let random: [u8; 32] = random::bytes();
    let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let token = format!("{TOKEN_PREFIX}{hex}");
    let hash = TokenHash(Sha256::digest(token.as_bytes()).into());
    (token, hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_up_to_a_bound() {
        let delays: Vec<u128> = (0..12).map(|failures| delay_after(failures).as_millis()).collect();
        assert_eq!(delays[..6], [0, 0, 0, 200, 400, 800]);
        assert_eq!(delays[11], DELAY_MAX.as_millis());
        assert_eq!(delay_after(u32::MAX), DELAY_MAX);
    }

    #[test]
    fn only_the_exact_password_matches_its_hash() {
        let stored = hash(b"open sesame").unwrap();
        assert!(matches(b"open sesame", Some(&stored)));
        assert!(!matches(b"open sesame!", Some(&stored)));
        assert!(!matches(b"", None));
        assert_ne!(hash(b"open sesame").unwrap(), stored);
    }
}
