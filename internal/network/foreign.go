package network

const (
	// foreignFrame is the frame of a foreign flow, and foreignAhead how much it has written ahead:
	// enough that only its window limits it.
	foreignFrame, foreignAhead = 64 << 10, 2 << 20
	// foreignPeriod is how often a foreign flow is looked at.
	foreignPeriod = 5 * Millisecond
)

// Foreign is a greedy TCP flow of somebody else over a link, whenever isOn says so. It never ends
// by itself: the clock always has an event.
func Foreign(clock Clock, out, back *Link, isOn func(now int64) bool) {
	var t *TCP
	var look func()
	look = func() {
		on := isOn(clock.Now())
		if on && t == nil {
			t = NewTCP(clock, out, back)
		}
		for on && t.written-t.next < foreignAhead {
			t.Write(foreignFrame, func() {})
		}
		if !on && t != nil {
			t.drop()
			t = nil
		}
		clock.After(foreignPeriod, look)
	}
	look()
}
