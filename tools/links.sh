#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Fails if a link of the documents to another site is dead. It needs the internet.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files -z '*.md' | xargs -0 sed '/^ *```/,/^ *```/d' | grep -oE '(\]\(|<)https?://[^)#> ]+' | sed -E 's/^(\]\(|<)//' | sort -u |
  grep -vE '^https?://([^/]*\.)?(example\.(com|org)|localhost|127\.0\.0\.1)' |
  xargs -P 4 -I @ sh -c 'code=$(curl --silent --location --output /dev/null --retry 2 --max-time 30 --write-out "%{http_code}" "@")
    case $code in 2*|3*|401|403|429|5*) ;; *) echo "dead ($code): @"; exit 1 ;; esac'
