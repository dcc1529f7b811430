package servingcert

import (
	"strings"
	"testing"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestServingNames(t *testing.T) {
	names, err := servingNames("https://hub.example:8443", "192.0.2.5:8443")
	must(t, err)
	if got := strings.Join(names, " "); got != "127.0.0.1 192.0.2.5 ::1 hub.example localhost" {
		t.Errorf("names %s", got)
	}
	names, err = servingNames("https://[2001:DB8::1]:8443", ":8443")
	must(t, err)
	if got := " " + strings.Join(names, " ") + " "; !strings.Contains(got, " 2001:db8::1 ") || strings.Contains(got, " :: ") {
		t.Errorf("names%s", got)
	}
	for _, bad := range [][2]string{{"http://hub", ":1"}, {"https://", ":1"}, {"https://hub", "8443"}} {
		if _, err := servingNames(bad[0], bad[1]); err == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
}
