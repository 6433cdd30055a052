package slots

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Bounds on a user's request. They protect memory from a mistyped number.
const (
	MaxSlots = 1 << 16 // of one host
	MaxHosts = 1 << 12 // in total
)

var errTooManyHosts = fmt.Errorf("more than %d hosts", MaxHosts)

// ParseList parses the value of --host: names separated by commas, each with an optional ":slots".
// A name may contain ranges: n[1-3,07].
func ParseList(list string) ([]Host, error) {
	words, err := splitList(list)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", list, err)
	}
	var hosts []Host
	for _, word := range words {
		more, err := parseWord(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		if hosts = append(hosts, more...); len(hosts) > MaxHosts {
			return nil, errTooManyHosts
		}
	}
	return hosts, nil
}

// ParseFile parses a host file. A line has the form "host", "host:N" or "host slots=N", optionally
// with max-slots=N. "#" begins a comment. Error messages contain name.
func ParseFile(name string, r io.Reader) ([]Host, error) {
	var all []Host
	lines := bufio.NewScanner(r)
	for number := 1; lines.Scan(); number++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		hosts, err := parseLine(words)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, number, err)
		}
		if all = append(all, hosts...); len(all) > MaxHosts {
			return nil, fmt.Errorf("%s:%d: %w", name, number, errTooManyHosts)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: names no host", name)
	}
	return all, nil
}

func parseLine(words []string) ([]Host, error) {
	hosts, err := parseWord(words[0])
	if err != nil {
		return nil, err
	}
	for _, word := range words[1:] {
		key, count, _ := strings.Cut(word, "=")
		switch key {
		case "slots", "max-slots", "max_slots":
		default:
			key = ""
		}
		if key == "" || count == "" {
			return nil, fmt.Errorf("%q: want a line such as \"host slots=4\"", word)
		}
		n, err := parseSlots(count)
		if err != nil {
			return nil, fmt.Errorf("host %s: %w", words[0], err)
		}
		for i := range hosts {
			if key == "slots" {
				hosts[i].Slots, hosts[i].Unnumbered = n, 0
			} else {
				hosts[i].Max = n
			}
		}
	}
	return hosts, nil
}

// parseWord parses a name, or a name with ranges, with an optional ":slots".
func parseWord(word string) ([]Host, error) {
	name, count, counted := word, "", false
	host := word[strings.LastIndexByte(word, '@')+1:]
	user := strings.TrimSuffix(word, host)
	switch i := strings.LastIndexByte(word, ':'); {
	case isBracketed(host) && strings.Count(host, ":") > 1: // [::1]:4
		var after string
		name, after, _ = strings.Cut(host[1:], "]")
		name = user + name
		if count, counted = strings.CutPrefix(after, ":"); !counted && after != "" {
			return nil, fmt.Errorf("host %s: want [address]:slots", word)
		}
	case i >= 0 && strings.Count(word, ":") == 1:
		name, count, counted = word[:i], word[i+1:], true
	}
	names, err := Expand(name)
	if err != nil {
		return nil, err
	}
	h := Host{Unnumbered: 1}
	if counted {
		n, err := parseSlots(count)
		if err != nil {
			return nil, fmt.Errorf("host %s: %w", name, err)
		}
		h = Host{Slots: n}
	}
	hosts := make([]Host, len(names))
	for i, name := range names {
		hosts[i] = h
		hosts[i].Name = name
	}
	return hosts, nil
}

func isBracketed(host string) bool {
	return strings.HasPrefix(host, "[") && strings.Contains(host, "]")
}

func parseSlots(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > MaxSlots {
		return 0, fmt.Errorf("%q is not a number of slots from 1 to %d", s, MaxSlots)
	}
	return n, nil
}

// splitList splits a list at its commas, except within brackets.
func splitList(list string) ([]string, error) {
	var words []string
	depth, begin := 0, 0
	for i, c := range []byte(list) {
		switch c {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				words = append(words, list[begin:i])
				begin = i + 1
			}
		}
		if depth < 0 || depth > 1 {
			break
		}
	}
	if depth != 0 {
		return nil, errors.New("brackets do not match")
	}
	return append(words, list[begin:]), nil
}

// Expand expands the ranges in brackets of a name, as in n[1-3,07], to all names. Numbers with
// leading zeros keep their width. The names are in order; the last brackets vary fastest.
func Expand(pattern string) ([]string, error) {
	bad := func(why string) ([]string, error) { return nil, fmt.Errorf("host %q: %s", pattern, why) }
	names := []string{""}
	for rest := pattern; rest != ""; {
		literal, after, ranged := strings.Cut(rest, "[")
		if strings.ContainsRune(literal, ']') {
			return bad("brackets do not match")
		}
		var ends []string
		rest = ""
		if ranged {
			inner, tail, closed := strings.Cut(after, "]")
			if !closed {
				return bad("brackets do not match")
			}
			var err error
			if ends, err = expandRanges(inner); err != nil {
				return bad(err.Error())
			}
			rest = tail
		} else {
			ends = []string{""}
		}
		if len(names)*len(ends) > MaxHosts {
			return bad(errTooManyHosts.Error())
		}
		next := make([]string, 0, len(names)*len(ends))
		for _, name := range names {
			for _, end := range ends {
				next = append(next, name+literal+end)
			}
		}
		names = next
	}
	for _, name := range names {
		if err := checkName(name); err != nil {
			return bad(err.Error())
		}
	}
	return names, nil
}

// checkName rejects a name that an agent could interpret as something else than a host, such as a
// flag or a command.
func checkName(name string) error {
	if name == "" {
		return errors.New("a host has no name")
	}
	if name[0] == '-' || strings.Contains(name, "@-") || strings.HasSuffix(name, "@") || len(name) > 255 {
		return errors.New("not the name of a host")
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-_.:@%", c) >= 0, c >= 0x80:
		default:
			return errors.New("not the name of a host")
		}
	}
	return nil
}

// expandRanges parses the text within brackets: 1-3,07.
func expandRanges(text string) ([]string, error) {
	var all []string
	for _, part := range strings.Split(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err1 := parseNumber(first)
		to, err2 := parseNumber(last)
		if err1 != nil || err2 != nil || to < from {
			return nil, fmt.Errorf("%q is not a range of numbers", part)
		}
		if to-from >= MaxHosts || len(all)+to-from >= MaxHosts {
			return nil, errTooManyHosts
		}
		width := 0
		if strings.HasPrefix(first, "0") {
			width = len(first)
		}
		for n := from; n <= to; n++ {
			all = append(all, fmt.Sprintf("%0*d", width, n))
		}
	}
	return all, nil
}

func parseNumber(s string) (int, error) {
	if s == "" || len(s) > 9 || strings.Trim(s, "0123456789") != "" {
		return 0, errors.New("not a number")
	}
	return strconv.Atoi(s)
}
