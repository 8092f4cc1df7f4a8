// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// namedConfig is a configuration in a file. A missing field is as in the standard
// configuration. It has only settings that can change under devices that claims hold. The
// number of seats is not among them, because the size of a seat depends on it.
type namedConfig struct {
	Offer  *[]string `json:"offer"`
	Shares struct {
		Smallest          *resource.Quantity `json:"smallest"`
		ComputeOvercommit *float64           `json:"computeOvercommit"`
	} `json:"shares"`
	TimeSlice struct {
		Slots *int `json:"slots"`
	} `json:"timeslice"`
	MIG struct {
		Profiles *profileList        `json:"profiles"`
		GPUs     *intstr.IntOrString `json:"gpus"`
		Layout   *string             `json:"layout"`
		Keep     *bool               `json:"keep"`
	} `json:"mig"`
}

// profileList is a word or a list of profiles, in the notation of [ParseMIGProfiles].
type profileList string

// UnmarshalJSON implements [json.Unmarshaler].
func (p *profileList) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, (*string)(p)) == nil {
		return nil
	}
	var list []string
	if json.Unmarshal(data, &list) != nil {
		return errors.New("mig.profiles: want common, all, or a list such as [1g.10gb, 3g.40gb]")
	}
	*p = profileList(strings.Join(list, ","))
	return nil
}

// NodeConfigs are the configurations of a file, by their names. Each is valid or not by
// itself. The zero value has none.
type NodeConfigs struct {
	valid   map[string]NodeConfig
	invalid map[string]error
}

// Config returns the configuration with the name. The error wraps [gpu.ErrNotFound] and
// lists the valid configurations if there is none, or [gpu.ErrInvalid] if it is not valid.
func (c NodeConfigs) Config(name string) (NodeConfig, error) {
	if err := c.invalid[name]; err != nil {
		return NodeConfig{}, err
	}
	config, found := c.valid[name]
	if !found {
		return NodeConfig{}, fmt.Errorf("%w: there is no such configuration; known are: %s",
			gpu.ErrNotFound, cmp.Or(strings.Join(slices.Sorted(maps.Keys(c.valid)), ", "), "none"))
	}
	return config, nil
}

// Invalid returns the errors of the configurations that are not valid, in order of their
// names.
func (c NodeConfigs) Invalid() []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.invalid)) {
		errs = append(errs, c.invalid[name])
	}
	return errs
}

// ParseNodeConfigs reads the configurations of a file: YAML that maps names, which are
// values of a node's label, to settings. A setting that is missing is as in the
// standard one.
//
// It returns an error only for a file that is not such a map. The errors of configurations
// name the configuration and each wrong field. All errors wrap [gpu.ErrInvalid].
func ParseNodeConfigs(content []byte, standard NodeConfig) (NodeConfigs, error) {
	var named map[string]json.RawMessage
	asJSON, err := yaml.YAMLToJSONStrict(content)
	if err == nil {
		err = json.Unmarshal(asJSON, &named)
	}
	if err != nil {
		return NodeConfigs{}, fmt.Errorf("configurations: %w: want a map of names to settings: %w", gpu.ErrInvalid, err)
	}
	configs := NodeConfigs{valid: map[string]NodeConfig{}, invalid: map[string]error{}}
	for name, settings := range named {
		config, err := parseNodeConfig(settings, standard)
		if wrong := validation.IsValidLabelValue(name); len(wrong) > 0 || name == "" {
			err = fmt.Errorf("%w: want a name that is the value of a label: %s", gpu.ErrInvalid, strings.Join(wrong, "; "))
		}
		if err != nil {
			configs.invalid[name] = fmt.Errorf("configuration %q: %w", name, err)
		} else {
			configs.valid[name] = config
		}
	}
	return configs, nil
}

// parseNodeConfig returns the standard configuration with the settings.
func parseNodeConfig(settings json.RawMessage, standard NodeConfig) (NodeConfig, error) {
	var set namedConfig
	unexpected, err := kjson.UnmarshalStrict(settings, &set)
	if err = errors.Join(append(unexpected, err)...); err != nil {
		return standard, fmt.Errorf("%w: %w", gpu.ErrInvalid, err)
	}
	config := standard
	var problems []error
	check := func(field string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("%s%w", field, err))
		}
	}
	if set.Offer != nil {
		config.Offer = ""
		if len(*set.Offer) > 0 {
			config.Offer, err = ParseOffer(strings.Join(*set.Offer, ","))
			check("", err)
		}
	}
	if set.MIG.Profiles != nil {
		config.MIG.Profiles, err = ParseMIGProfiles(string(*set.MIG.Profiles))
		check("mig.", err)
	}
	if set.MIG.GPUs != nil {
		config.MIG.GPUs, err = ParseMIGGPUs(set.MIG.GPUs.String())
		check("mig.gpus=", err)
	}
	if set.MIG.Layout != nil {
		config.Layout = *set.MIG.Layout
	}
	if set.MIG.Keep != nil {
		config.MIG.Keep = *set.MIG.Keep
	}
	if set.Shares.Smallest != nil {
		config.Shares.Smallest = set.Shares.Smallest.Value()
		check("shares.smallest=", CheckSmallestShare(*set.Shares.Smallest))
	}
	if set.Shares.ComputeOvercommit != nil {
		config.Shares.ComputeOvercommit = *set.Shares.ComputeOvercommit
		check("shares.computeOvercommit=", CheckComputeOvercommit(config.Shares.ComputeOvercommit))
	}
	if set.TimeSlice.Slots != nil {
		config.Shares.Units = standard.Shares.Units.With(kind.TimeSlice, *set.TimeSlice.Slots)
		check("timeslice.slots=", kind.TimeSlice.Units().CheckNumber(*set.TimeSlice.Slots))
	}
	return config, errors.Join(problems...)
}
