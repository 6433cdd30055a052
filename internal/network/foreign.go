package network

const (
	// foreignFrame is the size of a frame of a foreign flow. foreignAhead is the number of bytes
	// that the flow writes ahead: enough that only its window limits it.
	foreignFrame, foreignAhead = 64 << 10, 2 << 20
	// foreignPeriod is the interval at which a foreign flow writes.
	foreignPeriod = 5 * Millisecond
)

// Foreign starts a greedy TCP flow of another program over a link. The flow is active whenever isOn
// returns true. It never ends by itself, so the clock always has an event.
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
