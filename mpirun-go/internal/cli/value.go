package cli

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mpigo/mpigo/internal/tunable"
)

func parseRanks(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > MaxRanks {
		return 0, fmt.Errorf("want a number of ranks from 1 to %d", MaxRanks)
	}
	return n, nil
}

func parseVar(s string) (Var, error) {
	name, value, given := strings.Cut(s, "=")
	if name == "" || strings.ContainsRune(s, 0) {
		return Var{}, errors.New("want NAME or NAME=VALUE")
	}
	return Var{Name: name, Value: value, FromLauncher: !given}, tunable.CheckVariable(name, value)
}

// ParseSetting parses KEY=VALUE. It accepts every key.
func ParseSetting(s string) (Setting, error) {
	key, value, given := strings.Cut(s, "=")
	if key == "" || !given {
		return Setting{}, errors.New("want KEY=VALUE")
	}
	return Setting{Key: key, Value: value}, nil
}

func parseStdin(s string) (int, error) {
	switch s {
	case "all":
		return StdinAll, nil
	case "none":
		return StdinNone, nil
	}
	rank, err := strconv.Atoi(s)
	if err != nil || rank < 0 {
		return 0, errors.New("want a rank, all or none")
	}
	return rank, nil
}

func parseDebugRank(s string) (int, error) {
	rank, err := parseStdin(s)
	if err != nil || rank == StdinNone {
		return 0, errors.New("want a rank, or all")
	}
	if rank == StdinAll {
		return DebugAll, nil
	}
	return rank, nil
}

// parseTimeout parses a duration as time.ParseDuration does. A number without a unit means seconds.
func parseTimeout(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		d, err = time.ParseDuration(s + "s")
	}
	if err != nil || d <= 0 {
		return 0, errors.New("want a duration such as 30s, 5m or 1h30m, longer than 0")
	}
	return d, nil
}

// parseHangAfter parses a duration as parseTimeout does, and 0.
func parseHangAfter(s string) (time.Duration, error) {
	if d, err := time.ParseDuration(s); err == nil && d == 0 {
		return 0, nil
	}
	d, err := parseTimeout(s)
	if err != nil {
		err = errors.New("want a duration such as 60s, 5m or 1h, or 0 for no reports")
	}
	return d, err
}

func parseConnectTimeout(s string) (time.Duration, error) {
	d, err := parseTimeout(s)
	if err == nil && d > maxConnectTimeout {
		err = fmt.Errorf("want at most %v", maxConnectTimeout)
	}
	return d, err
}

// parseListenAddress checks an address to listen on. It rejects a port without an address, which
// would listen on all addresses: the user has to write 0.0.0.0.
func parseListenAddress(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || host == "" {
		return "", errors.New("want ADDRESS:PORT, such as 127.0.0.1:9101, or 0.0.0.0:9101 for all addresses")
	}
	return s, nil
}

func parseBindTo(s string) (BindTo, error) {
	_, err := oneOf("auto", "core", "none")(s)
	switch s {
	case "core":
		return BindCore, err
	case "none":
		return BindNone, err
	}
	return BindAuto, err
}

func oneOf(allowed ...string) func(s string) (string, error) {
	return func(s string) (string, error) {
		if !slices.Contains(allowed, s) {
			return "", errors.New("want " + strings.Join(allowed, " or "))
		}
		return s, nil
	}
}

func notEmpty(s string) (string, error) {
	if s == "" {
		return "", errors.New("is empty")
	}
	return s, nil
}

// splitWords splits a command into words. It supports the quotes and backslashes of a shell, and no
// other shell syntax.
func splitWords(s string) ([]string, error) {
	var words []string
	var word []byte
	inWord, quote := false, byte(0)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(s):
			i++
			word, inWord = append(word, s[i]), true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word = append(word, c)
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case strings.IndexByte(" \t\n", c) >= 0:
			if inWord {
				words = append(words, string(word))
			}
			word, inWord = nil, false
		default:
			word, inWord = append(word, c), true
		}
	}
	if quote != 0 {
		return nil, errors.New("unclosed quote")
	}
	if inWord {
		words = append(words, string(word))
	}
	if len(words) == 0 || words[0] == "" {
		return nil, errors.New("is empty")
	}
	return words, nil
}
