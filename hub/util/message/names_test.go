package message

import "testing"

func TestJoinNames(t *testing.T) {
	for _, tc := range []struct {
		names []string
		want  string
	}{{nil, ""}, {[]string{"a", "b"}, "a, b"}, {[]string{"a", "b", "c", "d", "e"}, "a, b, c and 2 more"}} {
		if got := JoinNames(tc.names, 3); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}
