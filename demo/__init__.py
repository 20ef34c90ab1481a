"""A guided tour: a catalogue is loaded and misused in every way, and each claim is checked."""
