package apierrors

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestRequeue(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "one", errors.New("modified"))
	stopped, stop := context.WithCancel(t.Context())
	stop()
	own := ctrl.Result{RequeueAfter: time.Minute}
	tests := []struct {
		name    string
		ctx     context.Context
		err     error
		want    ctrl.Result
		wantErr bool
	}{
		{name: "success keeps its result", want: own},
		{name: "lost race", err: fmt.Errorf("writing: %w", conflict), want: ctrl.Result{RequeueAfter: RaceDelay}},
		{name: "race and another error", err: errors.Join(conflict, errors.New("broken")), want: own, wantErr: true},
		{name: "stopping", ctx: stopped, err: errors.New("reading: context canceled")},
		{name: "real error", err: errors.New("broken"), want: own, wantErr: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx := tt.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			inner := reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) { return own, tt.err })
			got, err := Requeue(inner).Reconcile(ctx, ctrl.Request{})
			if got != tt.want || (err != nil) != tt.wantErr {
				t.Errorf("got %v and error %v, want %v and error %v", got, err, tt.want, tt.wantErr)
			}
		})
	}
}
