package shortpath

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNamesAreTheShortestThatDiffer(t *testing.T) {
	for _, want := range []map[string]string{
		{},
		{"/src/main.go": "main.go", "/src/other.go": "other.go"},
		{"/src/a/main.go": "a/main.go", "/src/b/main.go": "b/main.go", "/src/b/x.go": "x.go"},
		{"/p/a/main.go": "p/a/main.go", "/q/a/main.go": "q/a/main.go", "/q/b/main.go": "b/main.go"},
		{"main.go": "main.go", "/main.go": "/main.go", "a/main.go": "a/main.go"},
		{"": ".", "/": "/", "x/": "x"},
		{"a/a/a/x.go": "a/a/a/x.go", "a/a/x.go": "a/a/x.go", "a/x.go": "a/x.go"},
	} {
		var paths []string
		for path := range want {
			paths = append(paths, path, path)
		}
		assert.Equal(t, Names(want), Of(paths))
	}
	assert.Equal(t, "main.go", Names(nil).Name("/src/main.go"))
}
