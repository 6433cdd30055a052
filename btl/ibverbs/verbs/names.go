package verbs

import "strconv"

// enumName returns names[v], or the kind and the number for a value without a name.
func enumName[T ~uint8 | ~uint32](kind string, names []string, v T) string {
	if uint64(v) < uint64(len(names)) {
		return names[v]
	}
	return kind + " " + strconv.FormatUint(uint64(v), 10)
}
