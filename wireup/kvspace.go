package wireup

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

func (k *kvs) commit() {
	for key, value := range k.staged {
		if old, again := k.visible[key]; again {
			k.keys--
			k.bytes -= len(key) + len(old)
		}
		k.visible[key] = value
	}
	clear(k.staged)
}
