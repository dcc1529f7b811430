package plans

import (
	"testing"
	"time"
)

func FuzzDecodeDelivery(f *testing.F) {
	f.Add([]byte(`{"instructions":[{"name":"a"}]}`), []byte("3"), []byte("0.5"), "true", "false")
	f.Add([]byte{}, []byte("-1"), []byte("1h"), "yes", "")
	f.Fuzz(func(t *testing.T, plan, failures, period []byte, paused, canceled string) {
		d := DecodeDelivery(SecretData{KeyPlan: plan, KeyMaxFailures: failures, KeyProbePeriodSeconds: period})
		if d.MaxFailures < Unlimited || d.ProbePeriod < MinProbePeriod || (d.Checksum() == "") != (len(plan) == 0) {
			t.Errorf("got %+v", d)
		}
		i := DecodeInterrupt(map[string]string{AnnotationPaused: paused, AnnotationCanceled: canceled})
		if i.Canceled && i.Invalid != nil || i.Paused != (paused == "true") {
			t.Errorf("got %+v", i)
		}
	})
}

func FuzzParseTime(f *testing.F) {
	f.Add("Mon Jan  2 15:04:05 UTC 2006")
	f.Fuzz(func(t *testing.T, text string) {
		at, err := ParseTime(text)
		if err != nil {
			return
		}
		again, err := ParseTime(FormatTime(at.UTC()))
		if at.Year() >= 1 && at.Year() <= 9999 && (err != nil || !again.Equal(at.Truncate(time.Second))) {
			t.Errorf("%q becomes %s, %v", text, again, err)
		}
	})
}
