//! ZooKeeper's error codes.

use crate::codec::Malformed;
use holdfast_core::{NodeRefusal, Refusal};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        /// A ZooKeeper error code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// Its number in a reply.
            pub fn number(self) -> i32 {
                match self { $(Self::$name => $number,)* }
            }

            /// The error with this number. `None` if it is not known.
            pub fn of(number: i32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }
        }
    };
}

codes! {
    /// An internal error.
    SystemError = -1;
    /// An earlier change of a multi failed.
    RuntimeInconsistency = -2;
    /// The request is malformed.
    MarshallingError = -5;
    /// The request is not supported.
    Unimplemented = -6;
    /// The request timed out.
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
    /// The znode already exists.
    NodeExists = -110;
    /// The znode has children.
    NotEmpty = -111;
    /// The session has ended.
    SessionExpired = -112;
    /// The access control list is not valid.
    InvalidAcl = -114;
    /// Authentication failed.
    AuthFailed = -115;
    /// Another connection has attached the session.
    SessionMoved = -118;
    /// There is no such watch.
    NoWatcher = -121;
    /// A limit is reached.
    QuotaExceeded = -125;
}

impl Code {
    /// The error for a malformed request.
    pub(crate) fn of_malformed(malformed: &Malformed) -> Self {
        match *malformed {
            Malformed::NO_SUCH_KIND => Self::BadArguments,
            _ => Self::MarshallingError,
        }
    }

    /// The error for a refusal of the core. A lock that can't be acquired in this way is a bad
    /// argument: clients retry errors that they attribute to the connection, and a retry would
    /// never succeed.
    pub fn of_refusal(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Node { why, .. } => Self::of_node(why),
            Refusal::NoSession(_) | Refusal::NotOwner => Self::SessionExpired,
            Refusal::SessionMoved(_) => Self::SessionMoved,
            Refusal::NoRight { .. } => Self::NoAuth,
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
