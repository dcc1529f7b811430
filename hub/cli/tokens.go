package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/util/ownership"
)

func newTokens() *cobra.Command {
	return group(&cobra.Command{
		Use:   "tokens",
		Short: "Manage persistent tokens",
		Long: `List and revoke the persistent tokens with which users and programs reach clusters through the hub. The tokens of the kubectl plugin are
valid for some minutes and are not stored.

This requires the verbs list and delete on tokens.management.cattle.io, except for your own tokens.`,
	}, newTokensList(), newTokensRevoke())
}

// tokenLine is a token as it is listed.
type tokenLine struct {
	Name string `json:"name"`
	User string `json:"user"`
	// Cluster is the management Cluster. NamespacedName is the Cluster that it was created for; empty where the user may not read that.
	Cluster        string       `json:"cluster"`
	NamespacedName string       `json:"namespacedName,omitempty"`
	Created        metav1.Time  `json:"created"`
	ExpiresAt      metav1.Time  `json:"expiresAt"`
	LastUsedAt     *metav1.Time `json:"lastUsedAt,omitempty"`
	Description    string       `json:"description,omitempty"`
}

func newTokensList() *cobra.Command {
	where := &tokenAccess{}
	cmd := listed(&cobra.Command{
		Use:   "list [<namespace>/<cluster>]",
		Short: "List persistent tokens",
	}, where, where.lines, writeTokens)
	cmd.Flags().BoolVar(&where.own, "own", false, "list your own tokens, which requires no right to tokens.management.cattle.io")
	return cmd
}

// lines are the tokens of a cluster, or all where key is empty, the newest last.
func (a *tokenAccess) lines(ctx context.Context, c client.Reader, key client.ObjectKey) ([]tokenLine, error) {
	only := ""
	if key != (client.ObjectKey{}) {
		var err error
		if only, err = managementName(ctx, c, key); err != nil {
			return nil, err
		}
	}
	tokens, err := a.list(ctx, c)
	if err != nil {
		return nil, err
	}
	clusters := map[string]string{only: key.String()}
	if only == "" {
		if clusters, err = clustersByID(ctx, c); err != nil {
			return nil, err
		}
	}
	lines := []tokenLine{}
	for i := range tokens.Items {
		t := &tokens.Items[i]
		// Rancher has left Tokens with other fields and without a cluster, which open nothing.
		if id := t.Spec.ClusterName; id != "" && (only == "" || id == only) {
			lines = append(lines, tokenLine{
				t.Name, t.Spec.User.Username, t.Spec.ClusterName, clusters[t.Spec.ClusterName], t.CreationTimestamp, t.Spec.ExpiresAt,
				t.Status.LastUsedAt, t.Spec.Description,
			})
		}
	}
	slices.SortFunc(lines, func(a, b tokenLine) int {
		return cmp.Or(a.Created.Compare(b.Created.Time), cmp.Compare(a.Name, b.Name))
	})
	return lines, nil
}

// clustersByID are the Clusters that management Clusters were created for, by the name of the latter. Users may have no right to list them.
func clustersByID(ctx context.Context, c client.Reader) (map[string]string, error) {
	var list managementv3.ClusterList
	if err := c.List(ctx, &list); err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("listing management Clusters: %w", err)
	}
	clusters := map[string]string{}
	for i := range list.Items {
		if key := ownership.Key(&list.Items[i]); key.Name != "" {
			clusters[list.Items[i].Name] = key.String()
		}
	}
	return clusters, nil
}

func writeTokens(out io.Writer, lines []tokenLine, now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tUSER\tCLUSTER\tAGE\tEXPIRES\tLAST USED\tDESCRIPTION")
	for _, l := range lines {
		expires := "expired"
		if left := l.ExpiresAt.Sub(now); left > 0 {
			expires = "in " + duration.HumanDuration(left)
		}
		used := "never"
		if l.LastUsedAt != nil {
			used = duration.HumanDuration(now.Sub(l.LastUsedAt.Time)) + " ago"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			l.Name, printable(l.User), printable(cmp.Or(l.NamespacedName, l.Cluster)), duration.HumanDuration(now.Sub(l.Created.Time)), expires,
			used, printable(l.Description))
	}
	return table.Flush()
}

func newTokensRevoke() *cobra.Command {
	var where tokenAccess
	cmd := &cobra.Command{
		Use:   "revoke <name>...",
		Short: "Revoke persistent tokens",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("tokens revoke needs the name of a token: see \"hub tokens list\"")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := where.client()
			if err != nil {
				return err
			}
			return where.revoke(cmd.Context(), c, args, cmd.OutOrStdout())
		},
	}
	where.addFlags(cmd.Flags())
	return cmd
}

// revoke revokes all of the tokens, whatever becomes of one of them, and returns what was not revoked.
func (a *tokenAccess) revoke(ctx context.Context, c client.WithWatch, names []string, out io.Writer) error {
	var errs []error
	for _, name := range names {
		err := c.Delete(ctx, &managementv3.Token{ObjectMeta: metav1.ObjectMeta{Name: name}})
		list := "hub tokens list"
		if apierrors.IsForbidden(err) {
			list, err = "hub tokens list --own", a.revokeOwn(ctx, c, name)
		}
		switch {
		case apierrors.IsNotFound(err):
			errs = append(errs, fmt.Errorf("token %s not found: see %q", name, list))
		case err != nil:
			errs = append(errs, explain(fmt.Errorf("revoking token %s: %w", name, err)))
		default:
			fmt.Fprintf(out, "token %s revoked\n", name)
		}
	}
	return errors.Join(errs...)
}
