package plans

import "fmt"

// Interrupt reports whether a plan is paused or canceled. A cancellation wins over a pause. The zero value is neither.
type Interrupt struct {
	// Paused is AnnotationPaused.
	Paused bool
	// Canceled is AnnotationCanceled.
	Canceled bool
	// Invalid names an annotation that is neither "true" nor "false"; nil when both are valid, or a valid cancellation wins over an
	// invalid pause. While it is set, nothing is executed and nothing reported.
	Invalid error
}

// DecodeInterrupt reads the annotations of a plan Secret.
func DecodeInterrupt(annotations map[string]string) Interrupt {
	var i Interrupt
	read := func(name string, into *bool) {
		switch value, found := annotations[name]; {
		case !found || value == "false":
		case value == "true":
			*into = true
		default:
			i.Invalid = fmt.Errorf("annotation %s: must be \"true\" or \"false\", got %q", name, value)
		}
	}
	read(AnnotationPaused, &i.Paused)
	if read(AnnotationCanceled, &i.Canceled); i.Canceled {
		i.Invalid = nil
	}
	return i
}
