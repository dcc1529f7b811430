package plans

import "testing"

func TestDecodeInterrupt(t *testing.T) {
	for name, test := range map[string]struct {
		paused, canceled string
		want             Interrupt
		invalid          bool
	}{
		"nothing":                                {},
		"both false":                             {paused: "false", canceled: "false"},
		"paused":                                 {paused: "true", want: Interrupt{Paused: true}},
		"canceled":                               {canceled: "true", want: Interrupt{Canceled: true}},
		"both":                                   {paused: "true", canceled: "true", want: Interrupt{Paused: true, Canceled: true}},
		"an invalid pause":                       {paused: "yes", invalid: true},
		"an invalid cancellation blocks":         {paused: "true", canceled: "True", want: Interrupt{Paused: true}, invalid: true},
		"a cancellation wins over a wrong pause": {paused: "1", canceled: "true", want: Interrupt{Canceled: true}},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{}
			if test.paused != "" {
				annotations[AnnotationPaused] = test.paused
			}
			if test.canceled != "" {
				annotations[AnnotationCanceled] = test.canceled
			}
			got := DecodeInterrupt(annotations)
			if got.Paused != test.want.Paused || got.Canceled != test.want.Canceled || (got.Invalid != nil) != test.invalid {
				t.Errorf("got %+v", got)
			}
		})
	}
}
