//! Records that several requests and replies share: access control lists and Stats.

use super::jute::{Malformed, Reader, Writer};
use holdfast_core::{Acl, AuthId, NodeData, Stat};

pub(super) fn read_acl(reader: &mut Reader<'_>) -> Result<Vec<Acl>, Malformed> {
    reader.vector(|reader| {
        let perms = reader.int()?.cast_unsigned();
        // kazoo writes the empty id of the scheme `auth` as null.
        let id = AuthId { scheme: reader.text_or_null()?, id: reader.text_or_null()? };
        Ok(Acl { perms, id })
    })
}

pub(super) fn write_acl(writer: &mut Writer, acl: &[Acl]) {
    writer.vector(acl, |writer, Acl { perms, id }| {
        writer.int(perms.cast_signed()).text(&id.scheme).text(&id.id);
    });
}

pub(super) fn read_stat(reader: &mut Reader<'_>) -> Result<Stat, Malformed> {
    Ok(Stat {
        czxid: reader.unsigned()?,
        mzxid: reader.unsigned()?,
        ctime_ms: reader.unsigned()?,
        mtime_ms: reader.unsigned()?,
        version: reader.int()?,
        cversion: reader.int()?,
        aversion: reader.int()?,
        ephemeral_owner: reader.long()?,
        data_length: reader.int()?,
        num_children: reader.int()?,
        pzxid: reader.unsigned()?,
    })
}

pub(super) fn write_stat(writer: &mut Writer, stat: &Stat) {
    writer.unsigned(stat.czxid).unsigned(stat.mzxid);
    writer.unsigned(stat.ctime_ms).unsigned(stat.mtime_ms);
    writer.int(stat.version).int(stat.cversion).int(stat.aversion);
    writer.long(stat.ephemeral_owner).int(stat.data_length).int(stat.num_children);
    writer.unsigned(stat.pzxid);
}

pub(super) fn read_data(reader: &mut Reader<'_>) -> Result<Option<NodeData>, Malformed> {
    let parse = |bytes| NodeData::parse(bytes).map_err(|_| Malformed("the data is too long"));
    reader.buffer()?.map(parse).transpose()
}

pub(super) fn write_data(writer: &mut Writer, data: Option<&NodeData>) {
    writer.buffer(data.map(NodeData::as_bytes));
}
