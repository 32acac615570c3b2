//! What a ticket can be, and who may do what with it. Pure: no database, no locks, no clock.

use std::fmt;

/// The longest name of a client.
const CLIENT_BYTES_MAX: usize = 100;

/// The number of a ticket. In JSON it is a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TicketId(pub(crate) i64);

impl TicketId {
    /// `None` if no ticket can have this name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        // `parse` alone would take "+3" and "03" for other names of ticket 3.
        let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        text.parse().ok().filter(|_| plain).map(Self)
    }
}

impl fmt::Display for TicketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a client calls itself, without spaces around it.
pub(crate) fn check_client(client: &str) -> Result<&str, Refusal> {
    let client = client.trim();
    let wrong = match client {
        "" => "it is empty",
        long if long.len() > CLIENT_BYTES_MAX => "it is longer than 100 bytes",
        odd if odd.chars().any(is_invisible) => {
            "it contains a control character, or one that is invisible or changes the direction of text"
        }
        _ => return Ok(client),
    };
    Err(Refusal::BadInput(format!("invalid client_id: {wrong}")))
}

/// Characters with which a name can look like another one, or turn the text around it.
fn is_invisible(char: char) -> bool {
    let marks = ['\u{ad}', '\u{61c}', '\u{180e}', '\u{2060}', '\u{feff}'];
    char.is_control()
        || marks.contains(&char)
        || ('\u{200b}'..='\u{200f}').contains(&char)
        || ('\u{2028}'..='\u{202e}').contains(&char)
        || ('\u{2066}'..='\u{206f}').contains(&char)
}

/// A ticket, as its row says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) id: TicketId,
    pub(crate) state: State,
    /// Raised by each reservation, so that an older one can be told from a newer one.
    pub(crate) number: i64,
    /// How the last reservation ended; `None` if there was none.
    pub(crate) last_ending: Option<String>,
    /// How often `init` has made the tickets again: those of before have other locks.
    pub(crate) generation: i64,
}

/// What a row says about its ticket. Whether a reservation still lives, only its lock can say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Available,
    Reserved(Reservation),
    Booked { client: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) client: String,
    /// The row's number when it was made.
    pub(crate) number: i64,
    /// The lock's fencing token; `None` if the engine has none.
    pub(crate) token: Option<u64>,
    /// The detached lease; `None` if the lock lives in the instance that made the reservation.
    pub(crate) lease: Option<String>,
    /// By the database's clock, for display; `None` if it never ends.
    pub(crate) until_ms: Option<i64>,
    /// The random id in the lock's label; `None` if there is no lock.
    pub(crate) hold: Option<String>,
    /// The instance that made it.
    pub(crate) instance: String,
    /// Whether the lock lived in that instance, and it is gone.
    pub(crate) abandoned: bool,
    /// Whether a booking of it is under way, at whatever instance.
    pub(crate) is_being_booked: bool,
}

impl Reservation {
    pub(crate) fn is_over(&self, now_ms: i64) -> bool {
        self.abandoned || self.until_ms.is_some_and(|until| until <= now_ms)
    }

    /// Whether the row alone says that it lasts. An end that is further away than any reservation lasts
    /// was written before the database's clock was set back: then only the lock knows.
    pub(crate) fn is_certain(&self, now_ms: i64, reserve_seconds: u64) -> bool {
        let longest = i64::try_from(reserve_seconds.saturating_mul(1_000)).unwrap_or(i64::MAX);
        !self.is_over(now_ms)
            && self.until_ms.is_some_and(|until| until.saturating_sub(now_ms) <= longest)
    }
}

impl Ticket {
    /// Whether the list of available tickets shows it.
    pub(crate) fn is_available(&self, now_ms: i64) -> bool {
        match &self.state {
            State::Available => true,
            State::Reserved(reservation) => reservation.is_over(now_ms),
            State::Booked { .. } => false,
        }
    }

    /// Whether it makes sense to ask for the lock: only a sold ticket is out of reach for good.
    pub(crate) fn may_be_reserved(&self, client: &str) -> Result<(), Refusal> {
        match &self.state {
            State::Booked { client: owner } => Err(self.booked(owner, client)),
            State::Available | State::Reserved(_) => Ok(()),
        }
    }

    /// The reservation that this client can book, if its lock lives.
    pub(crate) fn reserved_by(&self, client: &str) -> Result<&Reservation, Refusal> {
        match &self.state {
            State::Available => Err(Refusal::NotReserved(self.id)),
            State::Booked { client: owner } => Err(self.booked(owner, client)),
            State::Reserved(reservation) if reservation.client == client => Ok(reservation),
            State::Reserved(reservation) => {
                Err(Refusal::Reserved { ticket: self.id, by: Some(reservation.client.clone()) })
            }
        }
    }

    /// The client that has it reserved, if it is not this one.
    pub(crate) fn other_client(&self, client: &str) -> Option<String> {
        match &self.state {
            State::Reserved(reservation) if reservation.client != client => {
                Some(reservation.client.clone())
            }
            _ => None,
        }
    }

    /// Why a reservation that was just this client's could not be sold, now that its row looks so.
    pub(crate) fn not_sold(&self, reservation: &Reservation) -> Refusal {
        match &self.state {
            State::Booked { client: owner } => self.booked(owner, &reservation.client),
            State::Reserved(later) if later.number != reservation.number => {
                let why = "a later reservation has raised the ticket's number".to_owned();
                Refusal::Fenced { ticket: self.id, why }
            }
            // Its time was over, or the settler has ended it.
            State::Reserved(_) | State::Available => Refusal::Expired(self.id),
        }
    }

    fn booked(&self, owner: &str, client: &str) -> Refusal {
        if owner == client {
            Refusal::AlreadyYours(self.id)
        } else {
            Refusal::Booked { ticket: self.id, by: owner.to_owned() }
        }
    }
}

/// Why a client does not get what it asked for. Nothing was sold, and nothing was paid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    BadInput(String),
    UnknownTicket(String),
    /// Somebody else has the lock.
    Reserved {
        ticket: TicketId,
        by: Option<String>,
    },
    Booked {
        ticket: TicketId,
        by: String,
    },
    AlreadyYours(TicketId),
    NotReserved(TicketId),
    /// The lock has ended before the booking.
    Expired(TicketId),
    /// A later reservation has raised the fence.
    Fenced {
        ticket: TicketId,
        why: String,
    },
    PaymentDeclined(TicketId),
}

impl Refusal {
    /// What programs compare.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::BadInput(_) => "bad_request",
            Self::UnknownTicket(_) => "unknown_ticket",
            Self::Reserved { .. } => "reserved",
            Self::Booked { .. } => "booked",
            Self::AlreadyYours(_) => "already_yours",
            Self::NotReserved(_) => "not_reserved",
            Self::Expired(_) => "expired",
            Self::Fenced { .. } => "fenced",
            Self::PaymentDeclined(_) => "payment_declined",
        }
    }

    /// What to do; empty if the message says so.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::BadInput(_) => {
                r#"send {"ticket_id": "3", "client_id": "ana"} as application/json"#
            }
            Self::UnknownTicket(_) | Self::Reserved { .. } | Self::Booked { .. } => {
                "GET /available_tickets lists the tickets that can be reserved"
            }
            Self::AlreadyYours(_) => "",
            Self::NotReserved(_) => "reserve it first",
            Self::Expired(_) | Self::Fenced { .. } => "nothing was charged; reserve it again",
            Self::PaymentDeclined(_) => "nothing was charged; the reservation is still yours",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadInput(why) => f.write_str(why),
            Self::UnknownTicket(name) => write!(f, "there is no ticket {name:?}"),
            Self::Reserved { ticket, by: Some(by) } => {
                write!(f, "ticket {ticket} is reserved by {by}")
            }
            Self::Reserved { ticket, by: None } => {
                write!(f, "ticket {ticket} is being reserved by another client")
            }
            Self::Booked { ticket, by } => write!(f, "ticket {ticket} is booked by {by}"),
            Self::AlreadyYours(ticket) => write!(f, "you have booked ticket {ticket} already"),
            Self::NotReserved(ticket) => write!(f, "ticket {ticket} is not reserved"),
            Self::Expired(ticket) => write!(f, "your reservation of ticket {ticket} has expired"),
            Self::Fenced { ticket, why } => {
                write!(f, "your reservation of ticket {ticket} was superseded: {why}")
            }
            Self::PaymentDeclined(ticket) => {
                write!(f, "the payment for ticket {ticket} was declined")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserved(client: &str, until_ms: Option<i64>) -> State {
        let (client, instance) = (client.to_owned(), "a".to_owned());
        State::Reserved(Reservation {
            client,
            number: 4,
            token: None,
            lease: None,
            hold: None,
            until_ms,
            instance,
            abandoned: false,
            is_being_booked: false,
        })
    }

    fn ticket(state: State) -> Ticket {
        Ticket { id: TicketId(3), state, number: 4, last_ending: None, generation: 0 }
    }

    #[test]
    fn ids_have_one_canonical_form() {
        assert_eq!(TicketId::parse("3"), Some(TicketId(3)));
        for other in ["", "0", "03", "+3", "-3", " 3", "3 ", "three", "99999999999999999999"] {
            assert_eq!(TicketId::parse(other), None, "{other:?}");
        }
    }

    #[test]
    fn expired_reservation_returns_to_the_list() {
        assert!(ticket(State::Available).is_available(0));
        assert!(!ticket(State::Booked { client: "ana".into() }).is_available(0));
        let taken = ticket(reserved("ana", Some(1_000)));
        assert_eq!([999, 1_000].map(|now| taken.is_available(now)), [false, true]);
        assert!(!ticket(reserved("ana", None)).is_available(i64::MAX), "without an end it stays");
    }

    /// After the clock was set back by an hour, tickets stayed reserved for an hour.
    #[test]
    fn end_in_the_far_future_is_left_to_the_lock() {
        let State::Reserved(taken) = reserved("ana", Some(60_000)) else { panic!() };
        let certain = |now_ms| taken.is_certain(now_ms, 60);
        assert_eq!([-1, 0, 59_999, 60_000].map(certain), [false, true, true, false]);
    }

    #[test]
    fn only_its_client_can_book_a_reservation() {
        let taken = ticket(reserved("ana", Some(1_000)));
        assert_eq!(taken.reserved_by("ana").map(|reservation| reservation.number), Ok(4));
        assert_eq!(taken.reserved_by("bo").unwrap_err().code(), "reserved");
        assert_eq!(ticket(State::Available).reserved_by("ana").unwrap_err().code(), "not_reserved");
        let sold = ticket(State::Booked { client: "ana".into() });
        assert_eq!(sold.reserved_by("ana").unwrap_err().code(), "already_yours");
        assert_eq!(sold.reserved_by("bo").unwrap_err().code(), "booked");
    }

    #[test]
    fn only_sold_tickets_are_unavailable() {
        assert_eq!(ticket(State::Available).may_be_reserved("bo"), Ok(()));
        assert_eq!(
            ticket(reserved("ana", Some(9))).may_be_reserved("bo"),
            Ok(()),
            "the lock decides"
        );
        let sold = ticket(State::Booked { client: "ana".into() });
        assert_eq!(sold.may_be_reserved("bo").unwrap_err().code(), "booked");
    }

    /// A reservation that had ended by itself was "superseded by a later reservation", and there was none.
    #[test]
    fn reason_is_that_of_the_row() {
        let State::Reserved(own) = reserved("ana", Some(1_000)) else { panic!() };
        assert_eq!(ticket(State::Available).not_sold(&own).code(), "expired");
        assert_eq!(ticket(State::Reserved(own.clone())).not_sold(&own).code(), "expired");
        let later = Reservation { number: 5, client: "bo".into(), ..own.clone() };
        assert_eq!(ticket(State::Reserved(later)).not_sold(&own).code(), "fenced");
        let sold = |to: &str| ticket(State::Booked { client: to.into() }).not_sold(&own);
        assert_eq!([sold("ana").code(), sold("bo").code()], ["already_yours", "booked"]);
    }

    #[test]
    fn client_names_are_validated() {
        assert_eq!(check_client("ana"), Ok("ana"));
        assert_eq!(check_client("  ana maria\t"), Ok("ana maria"));
        let marks = ["a\nb", "a\u{202e}b", "a\u{200b}b", "\u{2067}ana", "\u{feff}ana"];
        for wrong in marks.into_iter().chain(["", "  ", "\u{3000}", &"x".repeat(101)]) {
            assert_eq!(check_client(wrong).unwrap_err().code(), "bad_request", "{wrong:?}");
        }
    }
}
