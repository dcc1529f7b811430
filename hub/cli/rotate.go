package cli

import (
	"github.com/spf13/cobra"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
)

func newRotate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Replace certificates of a cluster",
		Long:  "Replace certificates of a cluster. Each command creates an operation and, with --wait, follows it to its end.",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRotateCertificates())
	return cmd
}

func newRotateCertificates() *cobra.Command {
	var o operationOptions
	var services []string
	cmd := &cobra.Command{
		Use:   "certificates <namespace>/<cluster>",
		Short: "Replace the certificates of a cluster's components",
		Long: `Replace the certificates of a cluster's components: of all, or of the services that are named. It creates a CertificateRotation,
which is kept for --ttl after its end. The machines restart RKE2 or k3s one after the other, without a drain. The certificate authorities
stay.`,
		Example: "  hub rotate certificates fleet-default/demo --wait\n" +
			"  hub rotate certificates fleet-default/demo --service controller-manager,scheduler",
		Args: oneCluster("rotate certificates"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd, args[0], certificateRotation(services))
		},
	}
	o.addFlags(cmd.Flags())
	cmd.Flags().StringSliceVar(&services, "service", nil,
		"service whose certificates are replaced, such as scheduler (repeatable; default: all)")
	return cmd
}

func certificateRotation(services []string) *operationv1.CertificateRotation {
	op := &operationv1.CertificateRotation{}
	for _, service := range services {
		op.Spec.Services = append(op.Spec.Services, operationv1.CertificateService(service))
	}
	return op
}
