package calls

import "testing"

func TestX(t *testing.T) { t.Log(Now()) }
