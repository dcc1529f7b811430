package tokens

import (
	"testing"
	"time"
)

func TestNext(t *testing.T) {
	for _, tt := range []struct{ expires, grace, want time.Time }{
		{}, {expires: start, want: start}, {grace: start, want: start}, {expires: start, grace: start.Add(time.Minute),
			want: start}, {expires: start.Add(time.Minute), grace: start, want: start},
	} {
		if got := (Registration{ExpiresAt: tt.expires, GraceExpiresAt: tt.grace}).Next(); !got.Equal(tt.want) {
			t.Errorf("%v and %v: %v", tt.expires, tt.grace, got)
		}
	}
}
