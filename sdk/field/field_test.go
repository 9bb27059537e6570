package field_test

import (
	"testing"

	"github.com/nagelfluh/nagelfluh/sdk/field"
)

func TestErrors(t *testing.T) {
	var errs field.Errors
	if errs.Err() != nil {
		t.Error("no errors are an error")
	}
	errs.Add(field.Pointer("a/b", "c~d", "0"), "needs %d", 1)
	errs.Add("", "is odd")
	if got := errs.Err().Error(); got != "/a~1b/c~0d/0: needs 1; is odd" {
		t.Errorf("got %s", got)
	}
}
