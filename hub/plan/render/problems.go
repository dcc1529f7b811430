package render

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Problem is something in the cluster's specification that cannot be carried out as it is written.
type Problem struct {
	// Field is the path in the provisioning Cluster, as its author wrote it.
	Field string
	// Message completes the sentence that the field starts.
	Message string
	// Fatal problems keep the plan from being delivered; what others are about was left out of the plan, unless Kept is set.
	Fatal bool
	// Kept tells that the plan does as it is told, although something speaks against it.
	Kept bool
}

// String is "field: message".
func (p Problem) String() string { return p.Field + ": " + p.Message }

// Problems are sorted by field and free of duplicates.
type Problems []Problem

// Err joins the fatal problems; nil when there is none.
func (p Problems) Err() error {
	var errs []error
	for _, problem := range p {
		if problem.Fatal {
			errs = append(errs, errors.New(problem.String()))
		}
	}
	return errors.Join(errs...)
}

// Merge adds the problems of another plan.
func (p Problems) Merge(other Problems) Problems {
	return slices.Concat(p, other).sorted()
}

func (p Problems) sorted() Problems {
	slices.SortFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(p)
}

func (p *Problems) warn(field, format string, args ...any) {
	*p = append(*p, Problem{Field: field, Message: fmt.Sprintf(format, args...)})
}

// doubt reports what is carried out all the same.
func (p *Problems) doubt(field, format string, args ...any) {
	*p = append(*p, Problem{Field: field, Message: fmt.Sprintf(format, args...), Kept: true})
}

func (p *Problems) fail(field, format string, args ...any) {
	*p = append(*p, Problem{Field: field, Message: fmt.Sprintf(format, args...), Fatal: true})
}
