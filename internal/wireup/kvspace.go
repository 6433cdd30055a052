package wireup

import (
	"slices"
	"strconv"
	"strings"
)

// kvs is the key-value space of one job. What is put becomes visible with
// commit, at the barrier, for a program must not come to rely on more than other
// process managers give. Its server's lock guards it.
type kvs struct {
	visible  map[string]string
	staged   map[string]string
	keys     int // in both, a key that is in both counted twice
	bytes    int // of keys and values in both
	maxKeys  int
	maxBytes int

	told listing // the last that was asked for: every rank asks for the same
}

// listing is what is visible under keys with a prefix, as getAll's answer.
type listing struct {
	prefix, text string // text "": not made, or something else has become visible
}

func newKVS(maxKeys, maxBytes int) kvs {
	return kvs{visible: map[string]string{}, staged: map[string]string{}, maxKeys: maxKeys, maxBytes: maxBytes}
}

// put stages a value; a second put of a key wins over the first. It returns
// false if there is no room.
func (k *kvs) put(key, value string) bool {
	keys, bytes := k.keys+1, k.bytes+len(key)+len(value)
	if old, again := k.staged[key]; again {
		keys, bytes = keys-1, bytes-len(key)-len(old)
	}
	if keys > k.maxKeys || bytes > k.maxBytes {
		return false
	}
	k.keys, k.bytes = keys, bytes
	k.staged[key] = value
	return true
}

func (k *kvs) get(key string) (string, bool) {
	value, ok := k.visible[key]
	return value, ok
}

// list is the answer to getAll, in order of keys.
func (k *kvs) list(prefix string) string {
	if k.told.text != "" && k.told.prefix == prefix {
		return k.told.text
	}
	var keys []string
	for key := range k.visible {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	var b strings.Builder
	b.WriteString(formatLine(getAllResult, "rc", "0", "count", strconv.Itoa(len(keys))))
	for _, key := range keys {
		b.WriteString(formatLine(getAllWord, "key", key, "value", k.visible[key]))
	}
	k.told = listing{strings.Clone(prefix), b.String()}
	return k.told.text
}

func (k *kvs) commit() {
	if len(k.staged) > 0 {
		k.told = listing{}
	}
	for key, value := range k.staged {
		if old, again := k.visible[key]; again {
			k.keys--
			k.bytes -= len(key) + len(old)
		}
		k.visible[key] = value
	}
	clear(k.staged)
}
