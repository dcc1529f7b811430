package main

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestClock(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0:00.0", 1999 * time.Millisecond: "0:01.9", 59999 * time.Millisecond: "0:59.9",
		60 * time.Second: "1:00.0", 754300 * time.Millisecond: "12:34.3", 61 * time.Minute: "61:00.0"} {
		if got := clock(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

func TestClusterKey(t *testing.T) {
	for in, want := range map[string]client.ObjectKey{
		"demo":     {Namespace: "fleet-default", Name: "demo"},
		"team/web": {Namespace: "team", Name: "web"},
	} {
		if diff := cmp.Diff(want, clusterKey(in)); diff != "" {
			t.Errorf("%s: %s", in, diff)
		}
	}
}

func TestStepsShowWhatALongOneDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		s := &steps{out: &out, width: 50, start: time.Now()}
		_ = s.do("Quick", func() (string, error) { return "made", nil })
		_ = s.do("Slow", func() (string, error) {
			s.progress("first")
			time.Sleep(3 * time.Second)
			s.progress("second\nline")
			time.Sleep(3 * time.Second)
			return "", nil
		})
		err := s.do("Bad", func() (string, error) { return "half", errors.New("no") })
		if err == nil {
			t.Error("the error is lost")
		}
		want := ` 0:00.0  ok  Quick: made
 0:02.0  ... Slow: first
 0:04.0  ... Slow: second line
 0:06.0  ok  Slow (6.0 s)
`
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRowsLeaveOutWhatWasNotMeasured(t *testing.T) {
	got := times{hubReady: 1500 * time.Millisecond, total: 90 * time.Second}.rows(300<<20, 0)
	want := [][2]string{{"hub ready", "1.5 s"}, {"whole demo", "90.0 s"}, {"memory of the hub", "300 MiB"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNextLinesNameTheLab(t *testing.T) {
	if s := nextLines("demo", demoCluster); !strings.Contains(s, "make demo-down") ||
		!strings.Contains(s, "bin/lab kubectl --cluster demo get pods -A") {
		t.Error(s)
	}
	if s := nextLines("other", demoCluster); !strings.Contains(s, "bin/lab --name other down") || strings.Contains(s, "make demo-down") {
		t.Error(s)
	}
}

func TestCommandsTakeTheirArguments(t *testing.T) {
	for _, args := range [][]string{{"demo", "x"}, {"down", "x"}, {"shell"}, {"host", "add"}, {"registry", "serve"}, {"unknown"}} {
		cmd := newRootCommand()
		cmd.SetArgs(args)
		if err := cmd.Execute(); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
