//! What goes wrong, in ZooKeeper's numbers.

use crate::codec::Malformed;
use holdfast_core::{NodeRefusal, Refusal};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        /// An error as ZooKeeper numbers it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// Its number in a reply.
            pub fn number(self) -> i32 {
                match self { $(Self::$name => $number,)* }
            }

            /// The error with that number.
            pub fn of(number: i32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }
        }
    };
}

codes! {
    /// Something that should not happen.
    SystemError = -1;
    /// An earlier change of a multi failed.
    RuntimeInconsistency = -2;
    /// The request can't be read.
    MarshallingError = -5;
    /// There is no such request here.
    Unimplemented = -6;
    /// The server did not do it in time.
    OperationTimeout = -7;
    /// A path, a kind or a time is not valid.
    BadArguments = -8;
    /// There is no such znode.
    NoNode = -101;
    /// The access control list does not allow it.
    NoAuth = -102;
    /// The znode has another version.
    BadVersion = -103;
    /// Ephemeral znodes have no children.
    NoChildrenForEphemerals = -108;
    /// There is one already.
    NodeExists = -110;
    /// It has children.
    NotEmpty = -111;
    /// The session has ended.
    SessionExpired = -112;
    /// The access control list is not valid.
    InvalidAcl = -114;
    /// The client is not who it says.
    AuthFailed = -115;
    /// Another connection has gone on with the session.
    SessionMoved = -118;
    /// There is no such watch.
    NoWatcher = -121;
    /// A bound is reached.
    QuotaExceeded = -125;
}

impl Code {
    /// What a refusal of the core is called. A lock that can't be had in this way is a bad argument:
    /// The error for a request that can't be read.
    pub(crate) fn of_malformed(malformed: &Malformed) -> Self {
        match *malformed {
            Malformed::NO_SUCH_KIND => Self::BadArguments,
            _ => Self::MarshallingError,
        }
    }

    /// clients retry what they take for a trouble of the connection, and this would never work.
    pub fn of_refusal(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Node { why, .. } => Self::of_node(why),
            Refusal::NoSession(_) | Refusal::NotOwner => Self::SessionExpired,
            Refusal::SessionMoved(_) => Self::SessionMoved,
            Refusal::Full(_) => Self::QuotaExceeded,
            _ => Self::SystemError,
        }
    }

    fn of_node(why: &NodeRefusal) -> Self {
        match why {
            NodeRefusal::NoNode => Self::NoNode,
            NodeRefusal::NodeExists => Self::NodeExists,
            NodeRefusal::BadVersion => Self::BadVersion,
            NodeRefusal::NotEmpty => Self::NotEmpty,
            NodeRefusal::ParentIsEphemeral => Self::NoChildrenForEphemerals,
            NodeRefusal::NoAuth | NodeRefusal::OtherDoor(_) => Self::NoAuth,
            NodeRefusal::InvalidAcl => Self::InvalidAcl,
            NodeRefusal::BadPath(_)
            | NodeRefusal::BadTtl
            | NodeRefusal::TicketWithTtl
            | NodeRefusal::TooManyOps
            | NodeRefusal::TooLarge
            | NodeRefusal::OtherRecipe { .. }
            | NodeRefusal::NumbersUsedUp => Self::BadArguments,
            NodeRefusal::Lock(refusal) => match **refusal {
                Refusal::Full(_) => Self::QuotaExceeded,
                _ => Self::BadArguments,
            },
            NodeRefusal::LineTooLong | NodeRefusal::TooManyEphemerals | NodeRefusal::Full => {
                Self::QuotaExceeded
            }
        }
    }
}
