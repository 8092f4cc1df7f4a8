// SPDX-License-Identifier: Apache-2.0

package catalog

import (
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

// ParseNodeConfigs reads the configurations of a file: YAML that maps names, which are
// values of a node's label, to settings. A setting that is missing is as in the
// standard one. contextMemory is the memory in bytes of the context of an MPS client.
// Errors wrap [gpu.ErrInvalid], and name each configuration and field that is wrong.
func ParseNodeConfigs(content []byte, standard NodeConfig, contextMemory uint64) (map[string]NodeConfig, error) {
	var named map[string]json.RawMessage
	asJSON, err := yaml.YAMLToJSONStrict(content)
	if err == nil {
		err = json.Unmarshal(asJSON, &named)
	}
	if err != nil {
		return nil, fmt.Errorf("configurations: %w: want a map of names to settings: %w", gpu.ErrInvalid, err)
	}
	configs := map[string]NodeConfig{}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if wrong := validation.IsValidLabelValue(name); len(wrong) > 0 || name == "" {
			err = fmt.Errorf("%w: want a name that is the value of a label: %s", gpu.ErrInvalid, strings.Join(wrong, "; "))
		} else {
			configs[name], err = parseNodeConfig(named[name], standard, contextMemory)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("configuration %q: %w", name, err))
		}
	}
	return configs, errors.Join(problems...)
}

// parseNodeConfig returns the standard configuration with the settings.
func parseNodeConfig(settings json.RawMessage, standard NodeConfig, contextMemory uint64) (NodeConfig, error) {
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
		config.Offer = Offer{}
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
		if !standard.Shares.MPS {
			contextMemory = 0
		}
		config.Shares.Smallest = set.Shares.Smallest.Value()
		check("shares.smallest=", CheckSmallestShare(*set.Shares.Smallest, contextMemory))
	}
	if set.Shares.ComputeOvercommit != nil {
		config.Shares.ComputeOvercommit = *set.Shares.ComputeOvercommit
		check("shares.computeOvercommit=", CheckComputeOvercommit(config.Shares.ComputeOvercommit))
	}
	if set.TimeSlice.Slots != nil {
		config.TimeSlices = *set.TimeSlice.Slots
		check("timeslice.slots=", CheckTimeSlices(config.TimeSlices))
	}
	return config, errors.Join(problems...)
}
