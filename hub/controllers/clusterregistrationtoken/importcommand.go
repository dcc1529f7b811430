package clusterregistrationtoken

import (
	"fmt"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/server/settings"
)

// setImportCommands sets the commands that deploy the cluster agent in a cluster to import.
func setImportCommands(crt *managementv3.ClusterRegistrationToken, hub settings.Settings) {
	status := &crt.Status
	if hub.ServerURL == "" {
		status.ManifestURL, status.Command, status.InsecureCommand, status.VerifiedCommand = "", "", "", ""
		return
	}
	status.ManifestURL = fmt.Sprintf("%s/v3/import/%s_%s.yaml", hub.ServerURL, managementv3.TokenPlaceholder, crt.Spec.ClusterName)
	url := quoteIfNeeded(status.ManifestURL)
	status.Command = "kubectl apply -f " + url
	status.InsecureCommand = "curl --insecure -fsSL " + url + " | kubectl apply -f -"
	status.VerifiedCommand = verifiedImportCommand(hub, status.ManifestURL)
}

// verifiedImportCommand applies nothing that is not verified. curl reads the URL, which contains the token, on standard input, since all
// users of the machine can list arguments.
func verifiedImportCommand(hub settings.Settings, manifestURL string) string {
	sum := hub.CAChecksum()
	if sum == "" {
		return ""
	}
	return fmt.Sprintf(`d=$(mktemp -d) && curl %s -o "$d/ca" && echo "%s  $d/ca" | sha256sum -c && `+
		`echo 'url = "%s"' | curl --cacert "$d/ca" -fsSL -K - | kubectl apply -f -`, firstRequest(hub), sum, manifestURL)
}
