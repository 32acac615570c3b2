//! The flags that move or close doors, one for each configurable door in the server's list.

use clap::builder::ValueParser;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use holdfast_server::{DOORS, Door, DoorAddress, DoorAddresses};
use std::collections::BTreeMap;

/// Addresses by door name. Doors that are not listed use their defaults.
#[derive(Debug, Clone, Default)]
pub(crate) struct DoorFlags(BTreeMap<&'static str, DoorAddress>);

fn settable() -> impl Iterator<Item = &'static Door> {
    DOORS.iter().filter(|door| door.setting.is_some())
}

impl DoorFlags {
    /// From the settings file.
    pub(crate) fn parse(door_texts: &BTreeMap<String, String>) -> Result<Self, String> {
        let door_texts =
            settable().filter_map(|door| Some((door.name, door_texts.get(door.name)?)));
        door_texts.map(|(door, text)| Ok((door, text.parse()?))).collect::<Result<_, _>>().map(Self)
    }

    /// Falls back to `other` for doors that are not set here.
    pub(crate) fn or(self, mut other: Self) -> Self {
        other.0.extend(self.0);
        other
    }

    pub(crate) fn addresses(&self) -> DoorAddresses {
        let door_texts = self.0.iter();
        door_texts.fold(DoorAddresses::default(), |all, (door, address)| all.with(door, *address))
    }

    /// As flags, ready to paste.
    pub(crate) fn words(&self) -> String {
        self.0.iter().map(|(door, address)| format!(" --{door} {address}")).collect()
    }
}

impl Args for DoorFlags {
    fn augment_args(command: Command) -> Command {
        let flags = settable().filter_map(|door| {
            let setting = door.setting.as_ref()?;
            let flag = Arg::new(door.name).long(door.name).value_name("ADDR").env(setting.env);
            let parser = ValueParser::new(str::parse::<DoorAddress>);
            Some(flag.help(setting.help).value_parser(parser))
        });
        command.args(flags)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for DoorFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let door_texts = |door: &Door| matches.get_one::<DoorAddress>(door.name).copied();
        self.0.extend(settable().filter_map(|door| Some((door.name, door_texts(door)?))));
        Ok(())
    }
}
