package progress

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOnlyLongCopiesAreReported(t *testing.T) {
	synctest.Test(t, testOnlyLongCopiesAreReported)
}

func testOnlyLongCopiesAreReported(t *testing.T) {
	var out strings.Builder
	report := &Reporter{Out: &out}
	in := report.Reader(strings.NewReader(strings.Repeat("x", 4096)), "downloading k3s", 4096)
	for range 4 {
		if _, err := io.CopyN(io.Discard, in, 1024); err != nil {
			t.Fatal(err)
		}
		time.Sleep(Interval / 2)
	}
	unknown := report.Start("pushing", 0)
	time.Sleep(Interval)
	unknown.Add(3 << 30)
	want := "  downloading k3s: 3.0 KiB of 4.0 KiB (75 %)\n  pushing: 3.0 GiB\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestNoReporterIsNoTrouble(t *testing.T) {
	var report *Reporter
	task := report.Start("x", 1)
	task.Add(1)
	task.Set(1, 1)
	if in := strings.NewReader("abc"); report.Reader(in, "x", 3) != io.Reader(in) {
		t.Error("a reader was wrapped although nobody reports")
	}
}
