package tunable

// StatsForm is the form in which a rank prints its counters at Finalize.
type StatsForm uint8

const (
	NoStats    StatsForm = iota
	StatsTable           // for people
	StatsJSON            // one JSON object on one line
)

// ParseStats parses a value of the tunable stats: any value of a Bool, or json.
func ParseStats(text string) (form StatsForm, ok bool) {
	if text == "json" {
		return StatsJSON, true
	}
	on, ok := parseBool(text)
	if on {
		return StatsTable, true
	}
	return NoStats, ok
}

func wellFormedStats(words []string) bool {
	_, ok := ParseStats(words[0])
	return ok
}
