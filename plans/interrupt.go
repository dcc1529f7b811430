package plans

import "fmt"

// Interrupt is whether the hub asks that a plan waits, or ends. A cancellation wins over a pause.
type Interrupt struct {
	Paused   bool
	Canceled bool
	// Invalid names an annotation that is neither "true" nor "false". Nothing is executed and nothing reported then, unless a
	// valid cancellation stands beside an invalid pause.
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
			i.Invalid = fmt.Errorf("annotation %s: %q is neither \"true\" nor \"false\"", name, value)
		}
	}
	read(AnnotationPaused, &i.Paused)
	if read(AnnotationCanceled, &i.Canceled); i.Canceled {
		i.Invalid = nil
	}
	return i
}
