package request

import (
	"testing"

	"github.com/mpigo/mpigo/internal/leaks"
)

// TestMain fails if a goroutine outlives the tests.
func TestMain(m *testing.M) { leaks.Main(m) }
