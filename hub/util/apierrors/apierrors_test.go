package apierrors

import (
	"errors"
	"fmt"
	"testing"

	pkgerrors "github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
)

func TestKinds(t *testing.T) {
	resource := schema.GroupResource{Resource: "secrets"}
	gone := apierrors.NewNotFound(resource, "a")
	race := apierrors.NewConflict(resource, "a", errors.New("changed"))
	exists := apierrors.NewAlreadyExists(resource, "a")
	ending := apierrors.NewForbidden(resource, "a", errors.New("terminating"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	other := errors.New("other")
	tests := map[string]struct {
		err                error
		race, gone, ending bool
	}{
		"nil":                        {},
		"other":                      {err: other},
		"race":                       {err: race, race: true},
		"already exists":             {err: fmt.Errorf("creating: %w", exists), race: true},
		"wrapped":                    {err: fmt.Errorf("writing: %w", gone), gone: true},
		"joined":                     {err: errors.Join(race, exists), race: true},
		"joined with another":        {err: errors.Join(race, other)},
		"joined with another kind":   {err: errors.Join(race, gone)},
		"aggregate within a wrapper": {err: pkgerrors.Wrapf(kerrors.NewAggregate([]error{pkgerrors.Wrap(gone, "b"), gone}), "a"), gone: true},
		"mixed within a wrapper":     {err: pkgerrors.Wrapf(kerrors.NewAggregate([]error{gone, other}), "a")},
		"ending namespace":           {err: fmt.Errorf("creating: %w", ending), ending: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if IsRace(tc.err) != tc.race || IsGone(tc.err) != tc.gone || IsEnding(tc.err) != tc.ending {
				t.Errorf("race %v, gone %v, ending %v", IsRace(tc.err), IsGone(tc.err), IsEnding(tc.err))
			}
		})
	}
}
