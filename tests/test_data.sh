#!/usr/bin/env bash
# diffpipe data: shapes, manifest, cache; what is written, that it is the same twice, what is refused. Needs DIFFPIPE and
# SRCDIR.
set -uo pipefail
# shellcheck source=tests/lib.sh
. "${SRCDIR:?the source tree}/tests/lib.sh" || exit 1
cd "$scratch" || exit 1
scenarios=$top/scenarios

says() { # says PATTERN ARGUMENTS...: exit status 0, stdout matches
  local pattern=$1
  shift
  "$diffpipe" data "$@" >out 2>err && grep -qE -e "$pattern" out && [ ! -s err ] || { cat out err; return 1; }
}
refuse() { one "refuses: data ${*:2}" refuses "$@"; } # PATTERN data ARGUMENTS...
metadata() { head -c 4096 "$1" | tr '{}' '\n\n' | grep -a '"format"'; } # of a safetensors file
same() { # FOLDER FOLDER: the same names with the same bytes
  diff -rq "$1" "$2"
}

# shapes
one "shapes" says '^demo: 10 pictures and their captions; next: diffpipe data manifest demo$' shapes demo --count 10 --sizes 64x64,48x80 --seed 3
one "ten pictures and captions" [ "$(find demo -name 'shape-00000?.ppm' | wc -l) $(find demo -name 'shape-00000?.txt' | wc -l)" = "10 10" ]
one "sizes alternate" [ "$(sed -n 2p demo/shape-000001.ppm | tr -d '\0') $(sed -n 2p demo/shape-000002.ppm | tr -d '\0')" = "80 48 64 64" ]
one "captions are told apart" [ "$(cat demo/*.txt | sort -u | wc -l)" -ge 9 ]
"$diffpipe" data shapes twin --count 10 --sizes 64x64,48x80 --seed 3 >/dev/null
one "the same seed gives the same files" same demo twin
"$diffpipe" data shapes twin --count 10 --sizes 64x64,48x80 --seed 4 >/dev/null
one "another seed gives other files" [ "$(cmp demo/shape-000000.ppm twin/shape-000000.ppm | wc -l)" -eq 1 ]
one "usual shapes are of the tiny models' size" says '"samples": 64' shapes usual --json
one "128 x 128" [ "$(sed -n 2p usual/shape-000000.ppm | tr -d '\0')" = "128 128" ]

# manifest
one "manifest" says '^demo/manifest.json: 10 samples, hash [0-9a-f]{8}$' manifest demo
cp demo/manifest.json first.json
one "again" says '"without_caption": 0' manifest demo --json
one "the same manifest" cmp first.json demo/manifest.json
one "--check" says '^demo/manifest.json: 10 samples' manifest --check demo
cp -r demo changed
echo "another caption" >changed/shape-000004.txt
refuse '^diffpipe: changed/manifest.json: shape-000004.ppm: another caption, allowed: what the manifest says$' data manifest --check changed
cp demo/shape-000002.ppm changed/shape-000000.ppm
refuse '^diffpipe: changed/manifest.json: shape-000000.ppm: another image, allowed: ' data manifest changed --check
rm changed/shape-000000.ppm
refuse '^diffpipe: changed/manifest.json: shape-000000.ppm: it is missing, allowed: ' data manifest changed --check
cp demo/shape-000000.ppm changed/shape-000000.ppm
cp demo/shape-000004.txt changed/shape-000004.txt
one "what is as it was passes again" says 'changed/manifest.json: 10' manifest changed --check
cp demo/shape-000000.ppm changed/more.ppm
refuse '^diffpipe: changed/manifest.json: more.ppm: it is new, allowed: ' data manifest changed --check
rm changed/shape-000009.txt
one "what has no caption is counted" says '11 samples, hash [0-9a-f]{8}; 2 without a caption$' manifest changed

# cache
one "cache" says '^latents +48 × 80 +5 samples' cache demo --buckets 64x64,48x80 --text-tokens 8 --text-channels 16
one "says that the encoders are toys" grep -q 'average-8x8 and hashed-words are toy encoders' out
one "three files" [ "$(cd demo && echo *.safetensors)" = "latents-48x80.safetensors latents-64x64.safetensors text.safetensors" ]
hash=$("$diffpipe" data manifest demo --json | sed -n 's/.*"hash": "\(.*\)".*/\1/p')
one "fingerprint of latents" grep -q "\"encoder\":\"average-8x8\",\"format\":\"diffpipe-latents\",\"height\":\"48\",\"latent_channels\":\"4\",\"manifest\":\"$hash\",\"model\":\"\",\"scaling_factor\":\"1\",\"shift_factor\":\"0\",\"version\":\"1\",\"width\":\"80\"" <<<"$(metadata demo/latents-48x80.safetensors)"
one "fingerprint of text" grep -q "\"format\":\"diffpipe-text\",\"manifest\":\"$hash\",\"model\":\"\",\"pooled_channels\":\"0\",\"text_channels\":\"16\",\"text_encoder\":\"hashed-words\",\"text_tokens\":\"8\",\"version\":\"1\"" <<<"$(metadata demo/text.safetensors)"
cp demo/text.safetensors text.safetensors
one "again, in the same bytes" says '"text_bytes": ' cache demo --buckets 64x64,48x80 --text-tokens 8 --text-channels 16 --json
one "the same text" cmp text.safetensors demo/text.safetensors
"$diffpipe" data manifest usual >/dev/null
one "for a UNet" says '"latent_channels": 4' cache usual --for "$scenarios/tiny-unet-2xcpu.toml" --json
one "a UNet's text" [ "$(sed -n 's/.*"text_\(tokens\|channels\)": //p' out | tr -d '\n')" = "16,64," ]
one "check" says '^64 samples, 8 batches of 8 an epoch; encoder average-8x8, text encoder hashed-words$' check usual --for "$scenarios/tiny-unet-2xcpu.toml"
refuse '^diffpipe: cache usual/latents-128x128.safetensors: latents of sample shape-000000.ppm: found the shape \[4, 16, 16\], the run wants \[16, 16, 16\]; make it again with ' data check usual --for "$scenarios/tiny-sd3-2xcpu.toml"
one "for SD 3" says '"encoder": "cosines-8x8"' cache usual --for "$scenarios/tiny-sd3-2xcpu.toml" --json
one "SD 3's pooled text" grep -qE '"pooled_channels": [1-9]' out
one "check for SD 3" says '"batches_per_epoch": 8,' check usual --for "$scenarios/tiny-sd3-2xcpu.toml" --json
refuse '^diffpipe: data check: --for is missing, needed: --for SCENARIO, of the training$' data check usual
echo "another caption" >usual/shape-000001.txt
refuse '^diffpipe: usual/shape-000001.txt: was changed since the manifest was made' data check usual --for "$scenarios/tiny-sd3-2xcpu.toml"
"$diffpipe" data manifest usual >/dev/null
refuse '^diffpipe: cache usual/latents-128x128.safetensors: was made of the manifest [0-9a-f]{8}, the data set.s is [0-9a-f]{8}; .*, or give --trust-cache$' data check usual --for "$scenarios/tiny-sd3-2xcpu.toml"
one "a cache may be trusted" says '^64 samples' check usual --for "$scenarios/tiny-sd3-2xcpu.toml" --trust-cache
sed 's/^\[task\]/[data]\nbuckets = [[128, 128], [96, 160]]\n[task]/; s#"models/#"'"$scenarios"'/models/#; s#"clusters/#"'"$scenarios"'/clusters/#' "$scenarios/tiny-sd3-2xcpu.toml" >two.toml
one "buckets of the scenario" says '"height": 96,' cache usual --for two.toml --json
one "another bucket, with no sample" says '^ +96 × 160 +0 samples$' check usual --for two.toml
one "a bucket that nothing is in has no file" says '^latents +512 × 64 +0 samples$' cache demo --buckets 64x64,48x80,512x64
one "and no file" [ ! -e demo/latents-512x64.safetensors ]
one "shapes replace all of it" says '^demo: 2 pictures' shapes demo --count 2
one "nothing old is left" [ "$(find demo -type f | wc -l)" -eq 4 ]

# refusals
refuse '^diffpipe: data shapes: found --sizes beside --height or --width, allowed: one way' data shapes x --sizes 64x64 --height 64
refuse '^diffpipe: data shapes: found --height alone, allowed: --height and --width$' data shapes x --height 64
for list in 64 64x 64x64, 64x64,64x64 8x8 64x9999 x64 64x64x64 -64x64 64x64/; do
  refuse '^diffpipe: data shapes: --sizes: found ".*", allowed: HEIGHTxWIDTH,' data shapes x --sizes="$list"
done
refuse '^diffpipe: data shapes: --count: found "0", allowed: an integer from 1 to 1000000$' data shapes x --count 0
one "nothing was written" [ ! -e x ]
mkdir mine && echo text >mine/notes.md
refuse '^diffpipe: mine: found notes.md in it, allowed: a new folder' data shapes mine
refuse '^diffpipe: mine: found no image, allowed: files that end in' data manifest mine
refuse '^diffpipe: nowhere: cannot be read: ' data manifest nowhere
refuse '^diffpipe: mine/manifest.json: is missing, make it with .diffpipe data manifest FOLDER.$' data cache mine --height 64 --width 64
cp first.json demo/manifest.json
refuse '^diffpipe: demo/shape-000000.ppm: was changed since the manifest was made' data cache demo --height 64 --width 64
"$diffpipe" data manifest demo >/dev/null
refuse '^diffpipe: data cache: found no size for the images, allowed: --for SCENARIO, --height and --width, or --buckets$' data cache demo
refuse '^diffpipe: data cache: found --height 60 --width 64, allowed: from 8 to 32768, multiples of 8$' data cache demo --height 60 --width 64
refuse '^diffpipe: data cache: --encoder: found "vae", allowed: average-8x8, cosines-8x8; ' data cache demo --height 64 --width 64 --encoder vae
refuse '^diffpipe: data cache: --text-encoder: found "clip", allowed: hashed-words; ' data cache demo --height 64 --width 64 --text-encoder clip
refuse '^diffpipe: .*tiny-sd3-2xcpu.toml: found a model that takes 16 latent channels' data cache demo --for "$scenarios/tiny-sd3-2xcpu.toml" --encoder average-8x8
rm demo/shape-000001.ppm
refuse '^diffpipe: demo/shape-000001.ppm: cannot be read: ' data cache demo --height 64 --width 64
one "no half a cache" [ -z "$(find demo -name '*.safetensors*')" ]

finish
