package tunable

// CheckMode is a form of checked mode.
type CheckMode uint8

const (
	NoCheck CheckMode = iota
	// Check makes some of the standard sends synchronous.
	Check
	// CheckStrict makes all of them synchronous.
	CheckStrict
)

// ParseCheck parses a value of the tunable check: any value of a Bool, or strict.
func ParseCheck(text string) (mode CheckMode, ok bool) {
	if text == "strict" {
		return CheckStrict, true
	}
	on, ok := parseBool(text)
	if on {
		return Check, true
	}
	return NoCheck, ok
}

func wellFormedCheck(words []string) bool {
	_, ok := ParseCheck(words[0])
	return ok
}
