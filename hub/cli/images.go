package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/server/feed"
	"github.com/drover-dev/drover/hub/server/settings"
)

// The images of this version that no setting of the hub names.
const (
	hubImage         = "drover/hub"
	systemAgentImage = "drover/system-agent"
)

// ofThisVersion is an image with the tag of this version.
func ofThisVersion(image string) string {
	return image + ":" + strings.ReplaceAll(Version, "+", "-") // a tag must not contain +
}

func newImages() *cobra.Command {
	return group(&cobra.Command{
		Use:   "images",
		Short: "List container images",
		Long:  `List the container images that a hub and its clusters need, for a registry in an air-gapped network.`,
	}, newImagesList())
}

// imagesList are the flags of "hub images list".
type imagesList struct {
	settings    settings.Settings
	versions    []string
	releaseData string
	out         output
}

func newImagesList() *cobra.Command {
	var o imagesList
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the images that a hub and its clusters need",
		Long: `Prints the images that this version of the hub and its clusters need, one per line: hub, system-agent and cluster-agent, and the
installer images of releases of k3s and RKE2. The releases are those of --kubernetes-version, or all of --release-data.

Pass the same --system-default-registry, --installer-image and --cluster-agent-image as to "hub serve". The images of k3s and RKE2
themselves are not listed: each of their releases has a list of its own.`,
		Example: `  hub images list --kubernetes-version v1.36.3+k3s1 --kubernetes-version v1.36.3+rke2r1
  hub images list --release-data /var/lib/drover/hub/release-data.json --system-default-registry registry.example.com`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *imagesList) addFlags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&o.versions, "kubernetes-version", nil, "release such as v1.36.3+k3s1 whose installer image to list; may be repeated")
	flags.StringVar(&o.releaseData, "release-data", "", "file or URL with data about releases, as for \"hub serve\"; lists all of them")
	flags.StringVar(&o.settings.SystemDefaultRegistry, "system-default-registry", "", "registry that is prepended to all system images")
	flags.StringVar(&o.settings.InstallerImagePrefix, "installer-image", settings.DefaultInstallerImagePrefix,
		"prefix of installer images; <runtime>:<version> is appended")
	flags.StringVar(&o.settings.ClusterAgentImage, "cluster-agent-image", "",
		"image of the cluster-agent with its tag (default "+settings.DefaultClusterAgentImage+":<version of this hub>)")
	o.out.addFlags(flags)
}

// imageLine is an image as it is listed.
type imageLine struct {
	Image string `json:"image"`
	// Component is hub, system-agent, cluster-agent or installer.
	Component string `json:"component"`
	// KubernetesVersion is the release that an installer image installs.
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
}

func (o *imagesList) run(ctx context.Context, stdout, stderr io.Writer) error {
	if err := o.out.check(); err != nil {
		return err
	}
	if err := settings.CheckRegistry(o.settings.SystemDefaultRegistry); err != nil {
		return fmt.Errorf("--system-default-registry: %w", err)
	}
	versions, err := o.releases(ctx)
	if err != nil {
		return err
	}
	if len(versions) == 0 {
		first, last := release.Minors(release.K3s)
		fmt.Fprintf(stderr, "Note: no installer images are listed: this hub supports v1.%d to v1.%d, and has no list of single releases; "+
			"specify --kubernetes-version or --release-data\n", first, last)
	}
	lines, err := o.images(versions)
	if err != nil {
		return err
	}
	return o.out.print(stdout, lines, func(w io.Writer) error {
		for _, l := range lines {
			if _, err := fmt.Fprintln(w, l.Image); err != nil {
				return err
			}
		}
		return nil
	})
}

// releases are the versions whose installer images are listed.
func (o *imagesList) releases(ctx context.Context) ([]string, error) {
	for _, version := range o.versions {
		if problem := new(release.VersionError); errors.As(release.Check(version), &problem) {
			return nil, fmt.Errorf("--kubernetes-version: %q %s", version, problem.Problem)
		}
	}
	if len(o.versions) > 0 && o.releaseData != "" {
		return nil, errors.New("specify --kubernetes-version or --release-data, not both")
	}
	if o.releaseData == "" {
		return o.versions, nil
	}
	catalog, err := feed.Read(ctx, o.releaseData)
	if err != nil {
		return nil, fmt.Errorf("--release-data: %w", err)
	}
	versions := catalog.Versions()
	if len(versions) == 0 {
		return nil, errors.New("--release-data: no release found")
	}
	return versions, nil
}

// images are the images of this hub and of releases, sorted, each once.
func (o *imagesList) images(versions []string) ([]imageLine, error) {
	own := o.settings
	named := func(component, image string) imageLine {
		own.ClusterAgentImage = image // which the hub puts into the registry in the same way
		return imageLine{Image: own.AgentImage(), Component: component}
	}
	lines := []imageLine{
		named("hub", ofThisVersion(hubImage)),
		named("system-agent", ofThisVersion(systemAgentImage)),
		named("cluster-agent", cmp.Or(o.settings.ClusterAgentImage, ofThisVersion(settings.DefaultClusterAgentImage))),
	}
	for _, version := range versions {
		image := o.settings.InstallerImage(release.Runtime(version), version)
		lines = append(lines, imageLine{Image: image, Component: "installer", KubernetesVersion: version})
	}
	slices.SortFunc(lines, func(a, b imageLine) int { return cmp.Compare(a.Image, b.Image) })
	for _, l := range lines {
		if _, err := name.ParseReference(l.Image, name.WithDefaultRegistry("")); err != nil {
			return nil, fmt.Errorf("--system-default-registry, --installer-image and --cluster-agent-image: must give names of images, got %q: %w",
				l.Image, err)
		}
	}
	return slices.CompactFunc(lines, func(a, b imageLine) bool { return a.Image == b.Image }), nil
}
