package comm_test

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestCommentsSayHowToPassInPlace: in one wording, at the blocking form of each collective with two
// buffers. The other forms refer to it.
func TestCommentsSayHowToPassInPlace(t *testing.T) {
	wording := regexp.MustCompile(`(?m)^In place: (a rank passes|all ranks pass|the root passes) nil as (in|out)( and as scounts)?, `)
	found := 0
	for _, f := range goFiles(t, ".", false) {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			text := fn.Doc.Text()
			if assert.Equal(t, strings.Count(strings.ToLower(text), "in place:"), len(wording.FindAllString(text, -1)), fn.Name.Name) && wording.MatchString(text) {
				found++
			}
		}
	}
	assert.Equal(t, 14, found, "collectives whose comment has a paragraph of this wording: change the number with a new one")
}
