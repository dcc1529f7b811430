package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/installer/artifact"
	"github.com/drover-dev/drover/installer/image"
	"github.com/drover-dev/drover/installer/k3s"
	"github.com/drover-dev/drover/installer/layout"
	"github.com/drover-dev/drover/installer/progress"
	"github.com/drover-dev/drover/installer/rke2"
)

// definitions are the distributions that images can be built for.
var definitions = map[string]func() layout.Definition{"k3s": k3s.Definition, "rke2": rke2.Definition}

// buildFlags are the flags of "installer build".
type buildFlags struct {
	runtime, version string
	architectures    []string

	from, checksums, script, scriptChecksum string
	images                                  string
	additionalImages                        []string

	output outputFlags
}

const buildExample = `  # from files in a directory, to a registry
  installer build --runtime k3s --version v1.36.3+k3s1 --arch amd64 --from ./release \
    --push registry.example.com/rancher/system-agent-installer-k3s

  # from the published release, for both architectures, to an OCI layout
  installer build --runtime k3s --version v1.36.3+k3s1 --arch amd64,arm64 \
    --from https://github.com/k3s-io/k3s/releases/download/v1.36.3+k3s1 \
    --install-script ./install.sh --oci-layout ./out`

func newBuildCommand() *cobra.Command {
	flags := &buildFlags{}
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build an installer image from release files",
		Long: `Builds an installer image from the files of a release.

Every file is verified against the release's checksum file. Builds are reproducible: the
same files give the same digest. docs/installer.md lists the files of a k3s or RKE2
release that are needed.`,
		Example: buildExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	set := cmd.Flags()
	set.StringVar(&flags.runtime, "runtime", "", "distribution: k3s or rke2")
	set.StringVar(&flags.version, "version", "", "version of the release, such as v1.36.3+k3s1")
	set.StringSliceVar(&flags.architectures, "arch", []string{"amd64"}, "architectures: amd64, arm64, or both separated by a comma")
	set.StringVar(&flags.from, "from", "", "directory or https URL with the files of the release")
	set.StringVar(&flags.checksums, "checksums", "",
		"name of the checksum file; {arch} is replaced by the architecture (default sha256sum-{arch}.txt)")
	set.StringVar(&flags.script, "install-script", "",
		"file or https URL of the release's install.sh (default: install.sh beside the other files)")
	set.StringVar(&flags.scriptChecksum, "install-script-sha256", "",
		"SHA-256 of install.sh, which the checksum files of releases do not list")
	set.StringVar(&flags.images, "images", string(image.ImagesAuto),
		"include container images: auto (if they are in a local directory), always or never")
	set.StringSliceVar(&flags.additionalImages, "add-images", nil,
		"further archives of container images in the release; {arch} is replaced by the architecture")
	flags.output.register(set, "rancher/system-agent-installer-<runtime>")
	for _, required := range []string{"runtime", "version", "from"} {
		_ = cmd.MarkFlagRequired(required)
	}
	cmd.AddCommand(newBuildClusterAgentCommand())
	return cmd
}

// run builds and writes the images.
func (f *buildFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	opts, err := f.options()
	if err != nil {
		return err
	}
	target, err := f.output.target(opts.Definition.Repository(), f.version, len(f.architectures))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "installer-build-")
	if err != nil {
		return fmt.Errorf("creating a temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	opts.TempDir, opts.Notes, opts.Progress = dir, stderr, &progress.Reporter{Out: stderr}
	sources := artifact.Options{TempDir: dir, Progress: opts.Progress}
	if opts.Source, err = artifact.Open(f.from, sources); err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	if f.script != "" {
		if opts.Script, err = f.fetchScript(ctx, sources); err != nil {
			return fmt.Errorf("--install-script: %w", err)
		}
	}
	images, err := image.Build(ctx, opts)
	if err != nil {
		return err
	}
	return target.write(ctx, images, opts.Progress, stdout)
}

var sha256Pattern = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

// options validates the flags of the build.
func (f *buildFlags) options() (image.Options, error) {
	define, ok := definitions[f.runtime]
	if !ok {
		return image.Options{}, fmt.Errorf("--runtime: must be k3s or rke2, got %q", f.runtime)
	}
	definition := define()
	if err := definition.CheckVersion(f.version); err != nil {
		return image.Options{}, fmt.Errorf("--version: %w", err)
	}
	if err := checkArchitectures(f.architectures); err != nil {
		return image.Options{}, err
	}
	mode := image.ImagesMode(f.images)
	if mode != image.ImagesAuto && mode != image.ImagesAlways && mode != image.ImagesNever {
		return image.Options{}, fmt.Errorf("--images: must be auto, always or never, got %q", f.images)
	}
	if f.scriptChecksum != "" && !sha256Pattern.MatchString(f.scriptChecksum) {
		return image.Options{}, errors.New("--install-script-sha256: must be 64 hexadecimal digits")
	}
	return image.Options{
		Definition: definition, Version: f.version, Architectures: f.architectures, Checksums: f.checksums,
		ScriptChecksum: f.scriptChecksum, Images: mode, AdditionalImages: f.additionalImages,
	}, nil
}

func checkArchitectures(architectures []string) error {
	if len(architectures) == 0 {
		return errors.New("--arch: must not be empty")
	}
	seen := map[string]bool{}
	for _, arch := range architectures {
		if err := layout.CheckArchitecture(arch); err != nil {
			return fmt.Errorf("--arch: %w", err)
		}
		if seen[arch] {
			return fmt.Errorf("--arch: duplicate architecture %s", arch)
		}
		seen[arch] = true
	}
	return nil
}

// fetchScript reads the install script from another place than the release. From a network it needs a checksum.
func (f *buildFlags) fetchScript(ctx context.Context, opts artifact.Options) (*artifact.File, error) {
	dir, name := artifact.Split(f.script)
	source, err := artifact.Open(dir, opts)
	if err != nil {
		return nil, err
	}
	if source.Remote() && f.scriptChecksum == "" {
		return nil, errors.New("a script from a URL needs --install-script-sha256 too")
	}
	file, err := source.Fetch(ctx, strings.TrimSpace(name))
	if err != nil {
		return nil, err
	}
	return &file, nil
}
