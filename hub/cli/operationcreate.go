package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	storagenames "k8s.io/apiserver/pkg/storage/names"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// operationOptions are the flags of commands that create an operation.
type operationOptions struct {
	scoped
	output output
	wait   waitOptions
	ttl    time.Duration
}

// operationCommand completes a command that creates one operation on a cluster.
func operationCommand(cmd *cobra.Command, operation func() operationv1.Operation) *cobra.Command {
	var o operationOptions
	cmd.Args = oneCluster
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0], operation()) }
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *operationOptions) addFlags(flags *pflag.FlagSet) {
	o.scoped.addFlags(flags)
	o.output.addFlags(flags)
	o.wait.addFlags(flags)
	flags.DurationVar(&o.ttl, "ttl", 24*time.Hour, "how long the operation is kept after its end; a negative duration is for ever")
}

func (o *operationOptions) check() error {
	var err error
	if o.ttl > 0 && o.ttl < time.Second {
		err = fmt.Errorf("--ttl %s: it must be 0, negative or at least 1s", o.ttl)
	}
	return errors.Join(o.output.check(), o.wait.check(), err)
}

// run creates an operation for the cluster of an argument, and waits for its end if it is to.
func (o *operationOptions) run(cmd *cobra.Command, argument string, op operationv1.Operation) error {
	if err := o.check(); err != nil {
		return err
	}
	key, err := o.key(argument, "cluster")
	if err != nil {
		return err
	}
	c, err := o.client()
	if err != nil {
		return err
	}
	return o.runFor(cmd, c, key, op)
}

// runFor creates operations for a cluster, and waits for the end of all of them if it is to.
func (o *operationOptions) runFor(cmd *cobra.Command, c client.WithWatch, cluster client.ObjectKey, ops ...operationv1.Operation) error {
	var lines []operationLine
	for i, op := range ops {
		if err := o.create(cmd.Context(), cmd.ErrOrStderr(), c, cluster, op); err != nil {
			return errors.Join(explain(withCreated(err, ops[:i])), o.printCreated(cmd.OutOrStdout(), lines, len(ops)))
		}
		if i == 0 && isPaused(cmd.Context(), c, cluster) {
			fmt.Fprintf(cmd.ErrOrStderr(), "hub: Cluster %s is paused; the operation begins when it is unpaused\n", cluster)
		}
		lines = append(lines, operationLineOf(op))
		if o.output.form == "table" {
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s created\n", lines[i].ref()); err != nil {
				return err
			}
		}
	}
	if !o.wait.wait {
		return o.printCreated(cmd.OutOrStdout(), lines, len(ops))
	}
	return o.waitForAll(cmd, c, ops)
}

// printCreated prints as one JSON document what was created of some operations: an object for one, a list for several. In a table each has
// its line already, and who waits for JSON reads each change.
func (o *operationOptions) printCreated(out io.Writer, lines []operationLine, of int) error {
	switch {
	case o.output.form == "table" || o.wait.wait || len(lines) == 0:
		return nil
	case of == 1:
		return o.output.print(out, lines[0], nil)
	}
	return o.output.print(out, lines, nil)
}

// withCreated says of an error which operations were created before it: nobody waits for them any more.
func withCreated(err error, created []operationv1.Operation) error {
	if len(created) == 0 {
		return err
	}
	var refs []string
	for _, op := range created {
		refs = append(refs, operationLineOf(op).ref())
	}
	return fmt.Errorf("%w; created before that: %s", err, strings.Join(refs, ", "))
}

// waitForAll waits for the end of operations, of which one begins after the other. The timeout is that of all together.
func (o *operationOptions) waitForAll(cmd *cobra.Command, c client.WithWatch, ops []operationv1.Operation) error {
	if o.wait.timeout > 0 {
		ctx, cancel := context.WithTimeout(cmd.Context(), o.wait.timeout)
		defer cancel()
		cmd.SetContext(ctx)
	}
	var errs []error
	for _, op := range ops {
		errs = append(errs, o.wait.until(cmd, c, op, o.connection, o.output, operationv1.PhaseSucceeded))
		if cmd.Context().Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// create creates an operation for a cluster. It has a name like those that the API server completes, by which createOnce finds it. messages
// is where it says what it waits for.
func (o *operationOptions) create(
	ctx context.Context, messages io.Writer, c client.Client, cluster client.ObjectKey, op operationv1.Operation,
) error {
	ref, err := clusterReference(ctx, c, cluster)
	if err != nil {
		return err
	}
	spec := op.CommonSpec()
	spec.ClusterRef, spec.TTL = ref, int64(o.ttl/time.Second)
	if o.ttl < 0 {
		spec.TTL = -1
	}
	op.SetNamespace(cluster.Namespace)
	op.SetName(storagenames.SimpleNameGenerator.GenerateName(cluster.Name + "-"))
	if err := createOnce(ctx, messages, c, op); err != nil {
		return fmt.Errorf("creating %s for Cluster %s: %w", operationv1.Kind(op), cluster, err)
	}
	return nil
}

// An operation whose creation was not answered is looked for every lookInterval, for the first time when the API server has had time to
// complete it, and for lookTime, in which the API server of a hub that restarts is back. After lookSilence the user sees why it takes long.
const lookTime, lookInterval, lookSilence = 10 * time.Second, 500 * time.Millisecond, 2 * time.Second

// createOnce creates an operation that has a name. Where the answer is lost, as with an API server that restarts, it looks whether the
// operation exists: after an error, the user creates another one, and a second restore discards what was written since the first.
func createOnce(ctx context.Context, messages io.Writer, c client.Client, op operationv1.Operation) error {
	err := c.Create(ctx, op)
	if !answerLost(err) {
		return err
	}
	key, ref := client.ObjectKeyFromObject(op), operationLineOf(op).ref()
	begin, silent := time.Now(), true
	for {
		select {
		case <-time.After(lookInterval):
		case <-ctx.Done():
		}
		found, unknown := objects.Get(ctx, c, key, op)
		switch {
		case found:
			return nil
		case unknown == nil:
			return err
		case apierrors.IsForbidden(unknown) || ctx.Err() != nil || time.Since(begin) > lookTime:
			return fmt.Errorf("%w; %s may have been created nevertheless: see \"hub operation list\"", err, ref)
		case silent && time.Since(begin) >= lookSilence:
			silent = false
			fmt.Fprintf(messages, "hub: waiting for the hub to answer: checking if %s was created\n", ref)
		}
	}
}

// answerLost reports whether a request may have been carried out in spite of its error: the API server or a load balancer has failed, or
// the connection has ended.
func answerLost(err error) bool {
	if status, answered := errors.AsType[*apierrors.StatusError](err); answered {
		return status.ErrStatus.Code >= http.StatusInternalServerError
	}
	if network, ok := errors.AsType[*net.OpError](err); ok && network.Op == "dial" {
		return false
	}
	_, sent := errors.AsType[*url.Error](err)
	return sent
}

// isPaused reports whether a Cluster is known to be paused. Whoever may not read it creates the operation all the same. The annotation of a
// Cluster does not hold its RKEControlPlane, which carries out operations.
func isPaused(ctx context.Context, c client.Reader, key client.ObjectKey) bool {
	cluster := &clusterv1.Cluster{}
	return c.Get(ctx, key, cluster) == nil && ptr.Deref(cluster.Spec.Paused, false)
}

// clusterReference refers to the Cluster that the user wrote: that of provisioning.cattle.io, or that of Cluster API.
func clusterReference(ctx context.Context, c client.Reader, key client.ObjectKey) (operationv1.ClusterReference, error) {
	ref := operationv1.ClusterReference{Kind: "Cluster", Name: key.Name}
	provisioning, capi := &provisioningv1.Cluster{}, &clusterv1.Cluster{}
	found, err := objects.Get(ctx, c, key, provisioning)
	switch {
	case err != nil:
		return ref, err
	case found && provisioning.Spec.RKEConfig == nil:
		return ref, fmt.Errorf("the Cluster %s is imported: the hub does not manage its machines", key)
	case found:
		// Whoever may not read the Cluster of Cluster API creates the operation all the same.
		if _, taken, _ := ownership.ClusterAPI(ctx, c, provisioning); taken != nil {
			return ref, fmt.Errorf("the Cluster %s has no machines: %s", key, taken.Message)
		}
		ref.APIVersion = provisioningv1.GroupVersion.String()
		return ref, nil
	}
	if found, err = objects.Get(ctx, c, key, capi); err != nil {
		return ref, err
	}
	switch {
	case !found:
		return ref, fmt.Errorf("there is no Cluster %s", key)
	case !rkev1.Refers(capi.Spec.ControlPlaneRef, "RKEControlPlane"):
		return ref, fmt.Errorf("the control plane of Cluster %s is not an RKEControlPlane", key)
	}
	ref.APIVersion = clusterv1.GroupVersion.String()
	return ref, nil
}
