package replicas

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzRead reads arbitrary streams: reading ends with an error, and messages that were read are the same when written and read again.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"replica":"a"}` + "\n" + `{"snapshot":true,"complete":true,"have":["c-1"]}` + "\n{}\n"))
	f.Add([]byte(`{"gone":["c-1"],"draining":true}`))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		var messages []message
		if err := read(bytes.NewReader(stream), func(m message) error { messages = append(messages, m); return nil }); err == nil {
			t.Fatal("the stream has ended without an error")
		}
		var again bytes.Buffer
		encoder := json.NewEncoder(&again)
		for _, m := range messages {
			if err := encoder.Encode(m); err != nil {
				t.Fatal(err)
			}
		}
		var retold []message
		err := read(&again, func(m message) error { retold = append(retold, m); return nil })
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		var want, got bytes.Buffer
		for i := range messages {
			fmt.Fprintf(&want, "%+v\n", messages[i])
		}
		for i := range retold {
			fmt.Fprintf(&got, "%+v\n", retold[i])
		}
		if diff := cmp.Diff(want.String(), got.String()); diff != "" {
			t.Errorf("written again, it differs (-want +got):\n%s", diff)
		}
	})
}

func TestSnapshot(t *testing.T) {
	for _, n := range []int{0, 1, keysPerMessage, keysPerMessage + 1} {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprintf("c-m-%08d:machine-%d", i, i)
		}
		messages := snapshot(keys)
		got := []string{}
		for i, m := range messages {
			got = append(got, m.Have...)
			if m.Snapshot != (i == 0) || m.Complete != (i == len(messages)-1) {
				t.Errorf("of %d messages for %d keys, number %d says snapshot %t, complete %t", len(messages), n, i, m.Snapshot, m.Complete)
			}
			if line, err := json.Marshal(m); err != nil || len(line) > maxMessage/4 {
				t.Errorf("a message of %d bytes, %v", len(line), err)
			}
		}
		if diff := cmp.Diff(keys, got); diff != "" {
			t.Errorf("%d keys (-want +got):\n%s", n, diff)
		}
	}
}
