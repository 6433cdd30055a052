package wireup

import (
	"slices"
	"strconv"
	"strings"
)

// kvs is the key-value space of one job. Values that were put become visible with commit, at the
// barrier, because other process managers do not guarantee more. The server's lock guards it.
type kvs struct {
	visible  map[string]string
	staged   map[string]string
	keys     int // in both maps; a key in both counts twice
	bytes    int // of the keys and values in both maps
	maxKeys  int
	maxBytes int

	published []publication  // in order; visible at once
	latest    map[string]int // the place in published of each key

	cached listing // the last one, since every rank asks for the same
}

// listing is the answer to a getAll request.
type listing struct {
	prefix, text string // text is "" before the first request, and after a commit
}

func newKVS(maxKeys, maxBytes int) kvs {
	return kvs{visible: map[string]string{}, staged: map[string]string{}, latest: map[string]int{}, maxKeys: maxKeys, maxBytes: maxBytes}
}

// put stages a value. A second put of a key replaces the first. put returns false if there is no
// room.
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

// list returns the answer to a getAll request, ordered by key.
func (k *kvs) list(prefix string) string {
	if k.cached.text != "" && k.cached.prefix == prefix {
		return k.cached.text
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
	k.cached = listing{strings.Clone(prefix), b.String()}
	return k.cached.text
}

func (k *kvs) commit() {
	if len(k.staged) > 0 {
		k.cached = listing{}
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
