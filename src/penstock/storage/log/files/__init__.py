"""The small files beside the segments: identity, leader epochs, checkpoint, snapshots.

Each is a frame with kind, version and CRC around a payload, and is replaced as a whole:
written under a temporary name, synced, renamed, and the directory synced. A reader sees
the old file, the new file or `CorruptFile`, never a mixture.

    frame      opens and closes the frame; `replace_durably`
    identity   which topic the directory belongs to
    epochs     where each leader epoch began
    checkpoint up to where the log is known to be on disk, and what recovery needs to start there

Left out: a history of old checkpoints. When the one there is cannot be read, the whole
log is scanned instead.
"""
