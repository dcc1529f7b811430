package v1

import (
	"encoding/json"
	"fmt"
	"testing"
)

// The checksums of the snapshots that were saved last are kept, one for each file.
func TestSnapshotChecksums(t *testing.T) {
	var all SnapshotChecksums
	for i := range maxSnapshotChecksums + 5 {
		all = all.With(map[string]string{fmt.Sprint(i): "first"})
	}
	all = all.With(map[string]string{"50": "second", "new": "third"})
	raw, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	read, err := ReadSnapshotChecksums(map[string]string{SnapshotChecksumsAnnotation: string(raw)})
	got := read.Map()
	if err != nil || len(read) != maxSnapshotChecksums || len(got) != len(read) || got["50"] != "second" || got["new"] != "third" ||
		got["4"] != "" || got["104"] != "first" {
		t.Errorf("%v: %v", err, got)
	}
	if _, err := ReadSnapshotChecksums(map[string]string{SnapshotChecksumsAnnotation: "{"}); err == nil {
		t.Error("what is no JSON is read")
	}
	if got, err := ReadSnapshotChecksums(nil); err != nil || len(got) > 0 {
		t.Errorf("%v, %v", got, err)
	}
}
